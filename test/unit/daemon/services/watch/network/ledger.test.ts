import { linkSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { bytePath } from '../../../../../../src/daemon/linux/paths/byte-path.ts';
import type { TreeChange, WatchEventType } from '../../../../../../src/daemon/services/watch/local/event.ts';
import { Ledger } from '../../../../../../src/daemon/services/watch/network/ledger.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';

async function filled(root: string, recursive = true, limit = 100_000): Promise<Ledger> {
  const ledger = new Ledger(bytePath(root));
  await ledger.fill(recursive, limit);
  return ledger;
}

function changeOf(type: WatchEventType, name: string, movedFrom: string | null = null): TreeChange {
  return { type, directory: '', name, movedFrom };
}

const brief = (changes: readonly TreeChange[]) =>
  changes.map(({ type, name, movedFrom }) =>
    [type, name, ...(movedFrom === null ? [] : [movedFrom])].join(' '),
  );

test.each([
  [false, 10, ['directory', 'file']],
  [true, 10, ['directory', 'file', 'directory/below']],
  [true, 2, ['directory', 'file', 'directory/below']],
])('recursive: %s, at most %d: the entries that are reported', async (recursive, limit, expected) => {
  const root = scratch();
  mkdirSync(join(root, 'directory', 'below'), { recursive: true });
  writeFileSync(join(root, 'file'), '');
  const ledger = await filled(root, recursive, limit);
  expect(ledger.names().sort()).toEqual(expected.toSorted());
  expect(ledger.size).toBe(expected.length);
});

const [GROUPS, DIRECTORIES, FILES] = [100, 10, 49];

/** Removes the files one by one, then the directories, and returns the CPU time in microseconds. */
async function removing(ledgers: readonly Ledger[]): Promise<number> {
  const names = ledgers.map((ledger) => {
    const all = ledger.names();
    const isFile = (name: string) => name.includes('f');
    return [
      ...all.filter(isFile),
      ...all
        .filter((name) => !isFile(name))
        .sort()
        .reverse(),
    ];
  });
  const before = process.threadCpuUsage();
  for (const [index, ledger] of ledgers.entries())
    for (const name of names[index] ?? []) await ledger.applyInotify(changeOf('remove', name));
  const { user, system } = process.threadCpuUsage(before);
  expect(ledgers.every(({ size }) => size === 0)).toBe(true);
  return user + system;
}

test('removing each of 50,000 entries takes as long as removing as many from small trees', async () => {
  const root = scratch();
  writeFileSync(join(root, 'f'), '');
  const groups = Array.from({ length: GROUPS }, (_, index) => join(root, 'all', `g${index}`));
  for (const group of groups)
    for (let directory = 0; directory < DIRECTORIES; directory++) {
      const path = join(group, `d${directory}`);
      mkdirSync(path, { recursive: true });
      for (let file = 0; file < FILES; file++) linkSync(join(root, 'f'), join(path, `f${file}`));
    }
  const small = await removing(await Promise.all(groups.map((group) => filled(group))));
  const whole = await filled(join(root, 'all'));
  expect(whole.size).toBe(GROUPS * (DIRECTORIES * (FILES + 1) + 1));
  expect(await removing([whole])).toBeLessThan(small * 10);
});

test('what is below an entry is removed with it, before it, and moves with it', async () => {
  const root = scratch();
  mkdirSync(join(root, 'a/b'), { recursive: true });
  for (const name of ['a/b/c', 'a/d', 'ab']) writeFileSync(join(root, name), '');
  const ledger = await filled(root);
  await ledger.applyInotify(changeOf('rename', 'a'));
  expect(ledger.names()).toEqual(['ab']);
  renameSync(join(root, 'a'), join(root, 'n'));
  await ledger.applyInotify(changeOf('create', 'n', 'a'));
  expect(ledger.names().sort()).toEqual(['ab', 'n', 'n/b', 'n/b/c', 'n/d']);
  expect(brief(ledger.take())).toEqual(['rename a', 'create n a']);
  // Polling finds a move elsewhere by the inode.
  renameSync(join(root, 'n/b'), join(root, 'm'));
  for (const name of ['m', 'n/b', 'n/b/c']) await ledger.check(name);
  expect(brief(ledger.take())).toEqual(['rename n/b', 'create m n/b']);
  expect(ledger.names().sort()).toEqual(['ab', 'm', 'm/c', 'n', 'n/d']);
  rmSync(join(root, 'm'), { recursive: true });
  await ledger.check('m');
  ledger.expire(0);
  expect(brief(ledger.take())).toEqual(['remove m/c', 'remove m']);
  expect(ledger.names().sort()).toEqual(['ab', 'n', 'n/d']);
});
