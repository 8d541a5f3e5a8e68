import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { needs } from '../../../../support/machine/needs.ts';
import { WatchFixture } from '../../../../support/services/watch.ts';

function fixture(...directories: string[]): WatchFixture {
  const made = new WatchFixture();
  mkdirSync(made.dir);
  for (const directory of directories) mkdirSync(made.at(directory), { recursive: true });
  return made;
}

/** The number of kernel watches of this process. */
function kernelWatches(): number {
  return readdirSync('/proc/self/fdinfo')
    .map((fd) => {
      try {
        return readFileSync(join('/proc/self/fdinfo', fd), 'utf8').match(/^inotify /gm)?.length ?? 0;
      } catch {
        return 0;
      }
    })
    .reduce((sum, count) => sum + count, 0);
}

describe('below the root', () => {
  test('everything is reported with its path', async () => {
    await using f = fixture('a/b/c');
    const watch = await f.watch();
    writeFileSync(f.at('a/b/c/file'), 'x');
    chmodSync(f.at('a/b'), 0o700);
    rmSync(f.at('a/b/c'), { recursive: true });
    expect(await f.told(watch)).toEqual([
      'create a/b/c/file',
      'write a/b/c/file',
      'chmod a/b',
      'remove a/b/c/file',
      'remove a/b/c',
    ]);
  });

  test('2,500 directories are watched when the watch is open', async () => {
    await using f = fixture();
    const directories = Array.from({ length: 2500 }, (_, n) => `${n % 50}/${n}`);
    for (const directory of directories) mkdirSync(f.at(directory), { recursive: true });
    const alone = kernelWatches();
    const watch = await f.watch();
    const made = kernelWatches() - alone;
    for (const directory of directories) mkdirSync(f.at(directory, 'new'));
    // The root and its 50, the directories above it, and one to learn the next watch descriptor.
    expect(made - (2500 + 51)).toBeLessThan(6);
    expect((await f.told(watch)).sort()).toEqual(directories.map((name) => `create ${name}/new`).sort());
  });

  test('links are not followed', async () => {
    await using f = fixture('a');
    mkdirSync(f.outside('elsewhere'));
    const watch = await f.watch();
    symlinkSync(f.outside('elsewhere'), f.at('a/link'));
    writeFileSync(f.outside('elsewhere/file'), 'x');
    expect(await f.told(watch)).toEqual(['create a/link']);
  });

  test('there is one kernel watch for each directory, shared by all watches and removed with the last', async () => {
    await using f = fixture('a/b', 'a/c');
    const before = await f.watch({ recursive: false });
    const alone = kernelWatches();
    const watches = [await f.watch(), await f.watch(), await f.watch()];
    expect(kernelWatches()).toBe(alone + 3);
    for (const watch of watches) watch[Symbol.dispose]();
    expect(kernelWatches()).toBe(alone);
    writeFileSync(f.at('file'), '');
    expect(await f.told(before)).toEqual(['create file']);
  });
});

describe('new directories', () => {
  test('each entry is reported once, however fast it was made', async () => {
    await using f = fixture();
    const watch = await f.watch();
    const expected: string[] = [];
    for (let n = 0; n < 100; n++) {
      mkdirSync(f.at(`${n}/a/b/c`), { recursive: true });
      for (const name of ['', '/a', '/a/b', '/a/b/c']) expected.push(`create ${n}${name}`);
      for (const name of ['a/1', 'a/b/2', 'a/b/c/3']) {
        writeFileSync(f.at(`${n}`, name), '');
        expected.push(`create ${n}/${name}`);
      }
    }
    expect((await f.told(watch)).sort()).toEqual(expected.sort());
  });

  test('each entry is reported once, also while events are read', async () => {
    await using f = fixture();
    const watch = await f.watch();
    const script = 'for n in $(seq 300); do mkdir -p $n/a/b; : > $n/1; : > $n/a/2; : > $n/a/b/3; done';
    execFileSync('sh', ['-c', `(${script}) &`], { cwd: f.dir, stdio: 'ignore' });
    const told: string[] = [];
    const last = 'create 300/a/b/3';
    while (!told.includes(last)) {
      for (const { type, name } of (await watch.next()) ?? []) told.push(`${type} ${name}`);
    }
    told.push(...(await f.told(watch)));
    const names = ['', '/a', '/a/b', '/1', '/a/2', '/a/b/3'];
    const expected = Array.from({ length: 300 }, (_, n) => names.map((name) => `create ${n + 1}${name}`));
    expect(told.sort()).toEqual(expected.flat().sort());
  });

  test('entries that are found are reported as CREATE without WRITE; later changes are reported', async () => {
    await using f = fixture();
    const watch = await f.watch();
    mkdirSync(f.at('new'));
    writeFileSync(f.at('new/file'), 'x');
    expect(await f.told(watch)).toEqual(['create new', 'create new/file']);
    writeFileSync(f.at('new/file'), 'y', { flag: 'a' });
    rmSync(f.at('new/file'));
    writeFileSync(f.at('new/file'), '');
    expect(await f.told(watch)).toEqual(['write new/file', 'remove new/file', 'create new/file']);
  });

  test('an entry that was deleted and made again meanwhile is reported again', async () => {
    await using f = fixture();
    const watch = await f.watch();
    for (let n = 0; n < 3; n++) {
      mkdirSync(f.at('new'));
      writeFileSync(f.at('new/file'), '');
      rmSync(f.at('new'), { recursive: true });
    }
    mkdirSync(f.at('new'));
    const told = await f.told(watch);
    expect(told.filter((line) => line === 'create new')).toHaveLength(4);
    expect(told.filter((line) => line === 'remove new')).toHaveLength(3);
    writeFileSync(f.at('new/file'), '');
    expect(await f.told(watch)).toEqual(['create new/file']);
  });

  test('nothing is lost when an ancestor is renamed meanwhile', async () => {
    await using f = fixture('top');
    const watch = await f.watch();
    mkdirSync(f.at('top/a/b'), { recursive: true });
    writeFileSync(f.at('top/a/b/file'), '');
    renameSync(f.at('top'), f.at('renamed'));
    expect(await f.told(watch)).toEqual([
      'create top/a',
      'rename top',
      'create renamed',
      'create renamed/a/b',
      'create renamed/a/b/file',
    ]);
    writeFileSync(f.at('renamed/a/b/late'), '');
    expect(await f.told(watch)).toEqual(['create renamed/a/b/late']);
  });
});

describe('moves', () => {
  test('within the tree: RENAME and CREATE, and the watches follow', async () => {
    await using f = fixture('a/b/c', 'd');
    const watch = await f.watch();
    renameSync(f.at('a/b'), f.at('d/e'));
    writeFileSync(f.at('d/e/c/file'), '');
    renameSync(f.at('d/e/c/file'), f.at('file'));
    expect(await f.told(watch)).toEqual([
      'rename a/b',
      'create d/e',
      'create d/e/c/file',
      'rename d/e/c/file',
      'create file',
    ]);
  });

  test('have the previous path', async () => {
    await using f = fixture('a');
    writeFileSync(f.outside('file'), '');
    const watch = await f.watch();
    renameSync(f.at('a'), f.at('b'));
    renameSync(f.outside('file'), f.at('c'));
    const events = await f.events(watch);
    expect(events.map(({ name, movedFrom }) => [name, movedFrom])).toEqual([
      ['a', null],
      ['b', 'a'],
      ['c', null],
    ]);
  });

  test('out of the tree: RENAME, and nothing from outside', async () => {
    await using f = fixture();
    const watch = await f.watch();
    const before = kernelWatches();
    mkdirSync(f.at('a/b'), { recursive: true });
    expect(await f.told(watch)).toEqual(['create a', 'create a/b']);
    expect(kernelWatches()).toBe(before + 2);
    renameSync(f.at('a'), f.outside('a'));
    writeFileSync(f.outside('a/b/at once'), '');
    expect(await f.told(watch)).toEqual(['rename a']);
    await expect.poll(() => kernelWatches()).toBe(before);
    writeFileSync(f.outside('a/b/later'), '');
    expect(await f.told(watch)).toEqual([]);
  });

  test('into the tree: CREATE for every entry, once', async () => {
    await using f = fixture();
    mkdirSync(f.outside('a/b'), { recursive: true });
    writeFileSync(f.outside('a/b/file'), 'x');
    const watch = await f.watch();
    renameSync(f.outside('a'), f.at('a'));
    expect(await f.told(watch)).toEqual(['create a', 'create a/b', 'create a/b/file']);
    writeFileSync(f.at('a/b/late'), '');
    expect(await f.told(watch)).toEqual(['create a/b/late']);
  });

  test('out of the tree and back', async () => {
    await using f = fixture('a/b');
    const watch = await f.watch();
    renameSync(f.at('a'), f.outside('a'));
    writeFileSync(f.outside('a/b/file'), '');
    renameSync(f.outside('a'), f.at('c'));
    expect(await f.told(watch)).toEqual(['rename a', 'create c', 'create c/b', 'create c/b/file']);
    writeFileSync(f.at('c/b/late'), '');
    expect(await f.told(watch)).toEqual(['create c/b/late']);
  });

  test('over an empty directory', async () => {
    await using f = fixture('a/b', 'empty');
    const watch = await f.watch();
    renameSync(f.at('a'), f.at('empty'));
    writeFileSync(f.at('empty/b/file'), '');
    expect(await f.told(watch)).toEqual(['rename a', 'create empty', 'create empty/b/file']);
  });

  test('an exchange of two directories reports both as new', async () => {
    await using f = fixture('a/in-a', 'b/in-b');
    const watch = await f.watch();
    exchange(f.at('a'), f.at('b'));
    expect(await f.told(watch)).toEqual([
      ...['rename a', 'create b', 'rename b', 'create a', 'remove a', 'create a', 'create b'],
      ...['create a/in-b', 'create b/in-a'],
    ]);
    writeFileSync(f.at('a/in-b/file'), '');
    writeFileSync(f.at('b/in-a/file'), '');
    rmdirSyncAll(f.at('b/in-a'));
    expect(await f.told(watch)).toEqual([
      'create a/in-b/file',
      'create b/in-a/file',
      'remove b/in-a/file',
      'remove b/in-a',
    ]);
  });
});

test('exchanges of two files, and of a file and a directory', async () => {
  await using f = fixture('a/in-a');
  for (const name of ['one', 'two']) writeFileSync(f.at(name), '');
  const watch = await f.watch();
  exchange(f.at('one'), f.at('two'));
  expect(await f.told(watch)).toEqual(['rename one', 'create two', 'rename two', 'create one', 'create two']);
  exchange(f.at('a'), f.at('one'));
  expect(await f.told(watch)).toEqual([
    ...['rename a', 'create one', 'rename one', 'create a', 'remove a', 'create a', 'create one'],
    'create one/in-a',
  ]);
  writeFileSync(f.at('one/in-a/late'), '');
  expect(await f.told(watch)).toEqual(['create one/in-a/late']);
});

test('a move there and back is not taken for an exchange', async () => {
  await using f = fixture('a/in-a');
  const watch = await f.watch();
  renameSync(f.at('a'), f.at('b'));
  renameSync(f.at('b'), f.at('a'));
  expect(await f.told(watch)).toEqual(['rename a', 'create b', 'rename b', 'create a']);
});

function rmdirSyncAll(path: string): void {
  for (const name of readdirSync(path)) rmSync(join(path, name));
  rmdirSync(path);
}

/** renameat2(2) with RENAME_EXCHANGE. */
function exchange(one: string, other: string): void {
  const program = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
one, other = (path.encode() for path in sys.argv[1:])
if libc.renameat2(-100, one, -100, other, 2) != 0: sys.exit(os.strerror(ctypes.get_errno()))`;
  needs('python3');
  execFileSync('python3', ['-c', program, one, other]);
}
