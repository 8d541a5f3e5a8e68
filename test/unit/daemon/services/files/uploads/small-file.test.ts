import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setAttributeSync } from 'fs-xattr';
import { beforeEach, describe, expect, test } from 'vitest';
import { KeyedQueue } from '../../../../../../src/base/exclusion.ts';
import { Lanes } from '../../../../../../src/daemon/linux/lanes/lanes.ts';
import { storeSmallFile } from '../../../../../../src/daemon/services/files/uploads/small-file.ts';
import { needs } from '../../../../../support/machine/needs.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { ADA } from '../../../../../support/machine/users.ts';

let directory: string;
const at = (name: string) => join(directory, name);
beforeEach(() => {
  directory = scratch();
});

const lanes = () => new Lanes({ limitMs: 10_000, threads: 4 });

function store(path: string, text: string, overwrites = new KeyedQueue('overwrite', 4)): Promise<boolean> {
  const metadata = { values: {}, prefix: 'user.svc.' };
  const context = { user: ADA, metadata, shared: { overwrites, lanes: lanes() } };
  return storeSmallFile(path, Buffer.from(text), context);
}

test('a new file belongs to the user; one that exists keeps inode and mode, without set-id bits', async () => {
  expect(await store(at('file'), 'a long content')).toBe(true);
  expect(statSync(at('file'))).toMatchObject({ uid: 2001, gid: 2002 });
  const { ino } = statSync(at('file'));
  chownSync(at('file'), 0, 0);
  chmodSync(at('file'), 0o6751);
  expect(await store(at('file'), 'short')).toBe(true);
  expect(readFileSync(at('file'), 'utf8')).toBe('short');
  expect(statSync(at('file'))).toMatchObject({ ino, uid: 2001, gid: 2002 });
  expect(statSync(at('file')).mode & 0o7777).toBe(0o751);
  expect(await store(at('file'), '')).toBe(true);
  expect(readFileSync(at('file'), 'utf8')).toBe('');
  expect(readdirSync(directory)).toEqual(['file']);
});

test('an overwrite waits for the others of its inode', async () => {
  for (const name of ['file', 'other']) writeFileSync(at(name), 'old');
  symlinkSync('file', at('link'));
  const { dev, ino } = statSync(at('file'), { bigint: true });
  const overwrites = new KeyedQueue('overwrite', 4);
  const { promise, resolve } = Promise.withResolvers<void>();
  const before = overwrites.run(`${dev}:${ino}`, () => promise);
  const stored = store(at('link'), 'new', overwrites);
  expect(await store(at('other'), 'new', overwrites)).toBe(true);
  expect(readFileSync(at('file'), 'utf8')).toBe('old');
  resolve();
  await before;
  expect(await stored).toBe(true);
  expect(readFileSync(at('file'), 'utf8')).toBe('new');
});

test('a file that was exchanged while the overwrite waited is left alone', async () => {
  writeFileSync(at('file'), 'old');
  const { dev, ino } = statSync(at('file'), { bigint: true });
  const overwrites = new KeyedQueue('overwrite', 4);
  const before = overwrites.run(`${dev}:${ino}`, async () => {
    expect(await store(at('probe'), '', overwrites)).toBe(true);
    writeFileSync(at('next'), 'of another');
    execFileSync('mv', [at('next'), at('file')]);
  });
  expect(await store(at('file'), 'new', overwrites)).toBe(false);
  await before;
  expect(readFileSync(at('file'), 'utf8')).toBe('of another');
});

describe('another way is needed', () => {
  test.each<[string, (path: string) => void]>([
    ['for a directory', (path) => mkdirSync(path)],
    ['for a pipe', (path) => execFileSync('mkfifo', [path])],
    ['for a file of /proc', (path) => symlinkSync('/proc/self/comm', path)],
    ['for a link of /proc', (path) => symlinkSync('/proc/self/fd/0', path)],
    ['below a file', (path) => symlinkSync('/etc/hostname/x', path)],
    ['below a missing directory', (path) => symlinkSync(`${path}-missing/x`, path)],
    ['in a cycle of links', (path) => symlinkSync(path, path)],
    ['for an attribute to be removed', (path) => withAttribute(path)],
  ])('%s', async (_, make) => {
    make(at('x'));
    expect(await store(at('x'), 'new')).toBe(false);
    expect(readdirSync(directory)).toEqual(['x']);
  });

  test('behind a link of another user than root', async () => {
    needs('root');
    writeFileSync(at('target'), 'old');
    for (const target of ['target', 'none']) {
      symlinkSync(target, at(`to-${target}`));
      lchownSync(at(`to-${target}`), 2001, 2002);
      expect(await store(at(`to-${target}`), 'new'), target).toBe(false);
    }
    expect(readFileSync(at('target'), 'utf8')).toBe('old');
    expect(readdirSync(directory).sort()).toEqual(['target', 'to-none', 'to-target']);
  });
});

function withAttribute(path: string): void {
  writeFileSync(path, 'old');
  setAttributeSync(path, 'user.svc.key', 'value');
}
