import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeAt } from '../../../../../../src/daemon/services/files/entries/remove.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { NEVER, testLanes } from '../../../../../support/services/lanes.ts';

test('removes a file, a link, a fifo and an empty directory', async () => {
  const root = scratch();
  writeFileSync(join(root, 'file'), '');
  symlinkSync('nowhere', join(root, 'link'));
  execFileSync('mkfifo', [join(root, 'fifo')]);
  mkdirSync(join(root, 'directory'));
  for (const name of readdirSync(root)) await removeAt(join(root, name), testLanes, NEVER);
  expect(readdirSync(root)).toEqual([]);
});

test('removes a tree, but not the targets of its links', async () => {
  const [root, kept] = [scratch(), scratch()];
  writeFileSync(join(kept, 'file'), '');
  mkdirSync(join(root, 'tree/a/b'), { recursive: true });
  symlinkSync(kept, join(root, 'tree/a/link'));
  writeFileSync(Buffer.concat([Buffer.from(`${root}/tree/`), Buffer.from([0xff, 0x0a])]), '');
  mkdirSync(join(root, 'tree/closed'), { mode: 0 });
  for (let index = 0; index < 2000; index++) writeFileSync(join(root, `tree/a/b/${index}`), '');
  await removeAt(join(root, 'tree'), testLanes, NEVER);
  expect(readdirSync(root)).toEqual([]);
  expect(readdirSync(kept)).toEqual(['file']);
});

test('removes a link to a directory, not the directory', async () => {
  const root = scratch();
  mkdirSync(join(root, 'directory/x'), { recursive: true });
  symlinkSync('directory', join(root, 'link'));
  await removeAt(join(root, 'link'), testLanes, NEVER);
  expect(readdirSync(root)).toEqual(['directory']);
  expect(readdirSync(join(root, 'directory'))).toEqual(['x']);
});

test('removes a tree deeper than the longest path and the limit of descriptors', async () => {
  const root = scratch();
  const name = 'd'.repeat(100);
  const chain = `for i in $(seq 300); do mkdir ${name} side; touch side/file; cd ${name}; done`;
  execFileSync('bash', ['-c', `cd ${root}; mkdir tree; cd tree; ${chain}`]);
  await removeAt(join(root, 'tree'), testLanes, NEVER);
  expect(readdirSync(root)).toEqual([]);
});

test.each(['nothing', 'nothing/below', 'file/below', 'dangling/below'])(
  'succeeds when nothing is at %s',
  async (name) => {
    const root = scratch();
    writeFileSync(join(root, 'file'), '');
    symlinkSync('nowhere', join(root, 'dangling'));
    await removeAt(join(root, name), testLanes, NEVER);
    expect(readdirSync(root).sort()).toEqual(['dangling', 'file']);
  },
);

test('succeeds when called many times at once for one tree', async () => {
  const root = scratch();
  for (let index = 0; index < 300; index++) mkdirSync(join(root, `tree/${index}/x`), { recursive: true });
  await Promise.all(Array.from({ length: 8 }, () => removeAt(join(root, 'tree'), testLanes, NEVER)));
  expect(existsSync(join(root, 'tree'))).toBe(false);
});

test('removes a tree while files are added to it', async () => {
  const tree = join(scratch(), 'tree');
  mkdirSync(tree);
  const filler = spawn('bash', [
    '-c',
    `for i in {1..300}; do mkdir -p ${tree}/$((i % 7)); : > ${tree}/$i; done`,
  ]);
  const filled = once(filler, 'exit');
  while (filler.exitCode === null) await removeAt(tree, testLanes, NEVER);
  await filled;
  await removeAt(tree, testLanes, NEVER);
  expect(existsSync(tree)).toBe(false);
});

test('returns the errors of the kernel', async () => {
  await expect(removeAt('/proc/version', testLanes, NEVER)).rejects.toMatchObject({
    kind: 'permission_denied',
    message: "operation not permitted on path: '/proc/version'",
  });
  const long = join(scratch(), 'n'.repeat(256));
  await expect(removeAt(long, testLanes, NEVER)).rejects.toMatchObject({ kind: 'invalid_argument' });
});
