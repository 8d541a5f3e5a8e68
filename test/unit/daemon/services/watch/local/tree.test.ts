import { expect, test } from 'vitest';
import {
  IN_CREATE,
  IN_DELETE,
  IN_ISDIR,
  IN_MOVED_FROM,
  IN_MOVED_TO,
  IN_Q_OVERFLOW,
} from '../../../../../../src/daemon/linux/inotify/inotify.ts';
import type { Directory } from '../../../../../../src/daemon/services/watch/local/directory.ts';
import { applyEvent } from '../../../../../../src/daemon/services/watch/local/entry-events.ts';
import { KernelWatches } from '../../../../../../src/daemon/services/watch/local/kernel-watches.ts';
import { Tree } from '../../../../../../src/daemon/services/watch/local/tree.ts';

/** A tree without kernel watches, whose root has been surveyed. */
function liveTree(): Tree {
  const kernel = new KernelWatches();
  const ground = { path: '/nowhere', owner: null };
  const tree = new Tree({ kernel, ground, recursive: true, enters: () => true }, { receive() {} });
  tree.root.surveyed = true;
  tree.isLive = true;
  return tree;
}

/** Applies an event; returns the changes, and how many steps follow. */
function apply(tree: Tree, directory: Directory, mask: number, name: string, cookie = 0): [string[], number] {
  const event = { descriptor: 1, mask, name, cookie };
  const { changes, later } = tree.run(() => applyEvent(tree, directory, event));
  const told = changes.map((change) => {
    const from = change.movedFrom === null ? '' : ` from ${change.movedFrom}`;
    return `${change.type} ${change.directory}/${change.name}${from}`;
  });
  return [told, later.length];
}

test('a step returns the changes that it has found', () => {
  const tree = liveTree();
  expect(apply(tree, tree.root, IN_CREATE, 'file')).toEqual([['create /file'], 0]);
  expect(apply(tree, tree.root, IN_CREATE | IN_ISDIR, 'new')).toEqual([['create /new'], 0]);
  expect(tree.unsurveyed).toEqual([tree.root.children.get('new')]);
  expect(apply(tree, tree.root, IN_DELETE | IN_ISDIR, 'new')).toEqual([['remove /new'], 0]);
  expect(tree.root.children.size).toBe(0);
  expect(apply(tree, tree.root, IN_Q_OVERFLOW, '')).toEqual([['rescan /.'], 0]);
});

test('a directory that moves is told at its new path, and what has happened below meanwhile after that', () => {
  const tree = liveTree();
  const moved = tree.root.addChild('a');
  moved.surveyed = true;
  // A step follows: the directory may have left the tree.
  expect(apply(tree, tree.root, IN_MOVED_FROM | IN_ISDIR, 'a', 7)).toEqual([['rename /a'], 1]);
  expect(apply(tree, moved, IN_CREATE, 'file')).toEqual([[], 0]);
  expect(apply(tree, tree.root, IN_MOVED_TO | IN_ISDIR, 'b', 7)).toEqual([
    ['create /b from a', 'create b/file'],
    0,
  ]);
});

test('the first half of a rename is taken once, by its cookie', () => {
  const tree = liveTree();
  tree.startMove(1, tree.root, 'one');
  tree.startMove(2, tree.root, 'two');
  expect(tree.takeMove(2)).toMatchObject({ name: 'two', path: 'two', moved: null });
  expect(tree.takeMove(2)).toBeNull();
  expect(tree.takeMove(1)).toMatchObject({ name: 'one' });
});

test('of halves that are never completed the last sixteen are kept; directories of others have left the tree', () => {
  const tree = liveTree();
  const directories = Array.from({ length: 20 }, (_, cookie) => tree.root.addChild(`${cookie}`));
  for (const cookie of directories.keys()) tree.startMove(cookie, tree.root, `${cookie}`);
  expect(directories.map(({ gone }) => gone)).toEqual(directories.map((_, cookie) => cookie < 4));
  expect(directories.map((_, cookie) => tree.takeMove(cookie) !== null)).toEqual(
    directories.map((_, cookie) => cookie >= 4),
  );
});
