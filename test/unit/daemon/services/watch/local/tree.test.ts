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
import type { TreeChange } from '../../../../../../src/daemon/services/watch/local/event.ts';
import { KernelWatches } from '../../../../../../src/daemon/services/watch/local/kernel-watches.ts';
import { Tree } from '../../../../../../src/daemon/services/watch/local/tree.ts';

/** A live tree without kernel watches, and the changes that it has reported. */
function liveTree(): { readonly tree: Tree; readonly told: TreeChange[] } {
  const told: TreeChange[] = [];
  const sink = { push: (change: TreeChange) => void told.push(change), end() {} };
  const kernel = new KernelWatches();
  const ground = { path: '/nowhere', owner: null };
  const tree = new Tree({ kernel, ground, recursive: true, enters: () => true, sink }, applyEvent);
  tree.root.surveyed = true;
  tree.unsurveyed.length = 0;
  tree.awaited.clear();
  tree.surveyed();
  return { tree, told };
}

/** Applies an event; returns the changes. */
function apply(
  { tree, told }: ReturnType<typeof liveTree>,
  at: Directory,
  mask: number,
  name: string,
  cookie = 0,
) {
  applyEvent(tree, at, { descriptor: 1, mask, name, cookie });
  return told.splice(0).map((change) => {
    const from = change.movedFrom === null ? '' : ` from ${change.movedFrom}`;
    return `${change.type} ${change.directory}/${change.name}${from}`;
  });
}

test('an event is reported as the changes that it means', () => {
  const live = liveTree();
  const { tree } = live;
  expect(apply(live, tree.root, IN_CREATE, 'file')).toEqual(['create /file']);
  expect(apply(live, tree.root, IN_CREATE | IN_ISDIR, 'new')).toEqual(['create /new']);
  expect(tree.unsurveyed).toEqual([tree.root.children.get('new')]);
  expect(apply(live, tree.root, IN_DELETE | IN_ISDIR, 'new')).toEqual(['remove /new']);
  expect(tree.root.children.size).toBe(0);
});

test('after lost events the tree begins anew, and a rescan is reported when it is live', () => {
  const live = liveTree();
  const { tree, told } = live;
  const { root } = tree;
  const below = root.addChild('below');
  expect(apply(live, root, IN_Q_OVERFLOW, '')).toEqual([]);
  expect(tree.root).not.toBe(root);
  expect(tree.unsurveyed).toEqual([tree.root]);
  // Events of the former directories are in what the survey finds.
  expect(apply(live, below, IN_CREATE, 'file')).toEqual([]);
  expect(root.gone).toBe(false);
  tree.awaited.clear();
  tree.surveyed();
  expect(told).toMatchObject([{ type: 'rescan', directory: '', name: '.' }]);
  expect(root.gone).toBe(true);
});

test('a directory that moves is told at its new path, and what has happened below meanwhile after that', () => {
  const live = liveTree();
  const { root } = live.tree;
  const moved = root.addChild('a');
  moved.surveyed = true;
  expect(apply(live, root, IN_MOVED_FROM | IN_ISDIR, 'a', 7)).toEqual(['rename /a']);
  expect(apply(live, moved, IN_CREATE, 'file')).toEqual([]);
  expect(apply(live, root, IN_MOVED_TO | IN_ISDIR, 'b', 7)).toEqual(['create /b from a', 'create b/file']);
});

test('an arrival names an old path only if nothing else has left that path since', () => {
  const live = liveTree();
  const { root } = live.tree;
  const [from, to] = [IN_MOVED_FROM | IN_ISDIR, IN_MOVED_TO | IN_ISDIR];
  const first = root.addChild('a');
  apply(live, root, from, 'a', 1);
  apply(live, root, IN_CREATE | IN_ISDIR, 'a');
  apply(live, root, from, 'a', 2);
  expect(first.gone).toBe(true);
  // It is read anew, so that all of its entries are told.
  expect(apply(live, root, to, 'b', 1)).toEqual(['create /b']);
  expect(live.tree.unsurveyed).toContain(root.children.get('b'));
  expect(apply(live, root, to, 'c', 2)).toEqual(['create /c from a']);
});

test('of halves that are never completed the last sixteen are kept; directories of others have left the tree', () => {
  const live = liveTree();
  const { root } = live.tree;
  const directories = Array.from({ length: 20 }, (_, cookie) => root.addChild(`${cookie}`));
  for (const cookie of directories.keys()) apply(live, root, IN_MOVED_FROM | IN_ISDIR, `${cookie}`, cookie);
  expect(directories.map(({ gone }) => gone)).toEqual(directories.map((_, cookie) => cookie < 4));
  const arrivals = directories.map((_, cookie) =>
    apply(live, root, IN_MOVED_TO | IN_ISDIR, `new${cookie}`, cookie),
  );
  expect(arrivals).toEqual(
    directories.map((_, cookie) => [`create /new${cookie}${cookie < 4 ? '' : ` from ${cookie}`}`]),
  );
});
