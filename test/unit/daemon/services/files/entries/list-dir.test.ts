import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  mkdirSync,
  openSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setAttributeSync } from 'fs-xattr';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Entry } from '../../../../../../src/daemon/services/files/entries/entry.ts';
import { listDir } from '../../../../../../src/daemon/services/files/entries/list-dir.ts';
import { needs } from '../../../../../support/machine/needs.ts';
import { scratch } from '../../../../../support/machine/scratch.ts';
import { testEntries } from '../../../../../support/machine/users.ts';

async function list(path: string, depth = 0): Promise<Entry[]> {
  return (await Array.fromAsync(listDir(path, depth, testEntries(scratch())))).flat();
}

async function listPaths(path: string, depth?: number): Promise<string[]> {
  return (await list(path, depth)).map((entry) => entry.path);
}

/** `b/c/d/e`, files beside each, and names that sort differently by bytes and by language. */
function tree(): string {
  const root = scratch();
  mkdirSync(join(root, 'b/c/d/e'), { recursive: true });
  for (const path of ['a', 'b/z', 'b/c/x', 'b/c/d/y', 'b-', 'B', 'ä', 'z'])
    writeFileSync(join(root, path), '');
  return root;
}

describe('order and depth', () => {
  test('one level is sorted by bytes', async () => {
    const root = tree();
    const sorted = ['B', 'a', 'b', 'b-', 'z', 'ä'].map((name) => join(root, name));
    expect(await listPaths(root)).toEqual(sorted);
    expect(await listPaths(root, 1)).toEqual(sorted);
  });

  test('parents precede their children, and children the next sibling', async () => {
    const root = tree();
    const expected = ['B', 'a', 'b', 'b/c', 'b/c/d', 'b/c/x', 'b/z', 'b-', 'z', 'ä'];
    expect(await listPaths(root, 3)).toEqual(expected.map((name) => join(root, name)));
  });

  test('all levels agree with find(1)', async () => {
    const root = tree();
    const found = execFileSync('find', [root, '-mindepth', '1'], { encoding: 'utf8' }).trim().split('\n');
    expect((await listPaths(root, 0xffff_ffff)).toSorted()).toEqual(found.toSorted());
  });

  test('names with characters above U+FFFF are sorted by bytes', async () => {
    const root = scratch();
    // By UTF-16 units the second would come first.
    for (const name of ['\uff5e', '😀']) writeFileSync(join(root, name), '');
    expect((await list(root)).map(({ name }) => name)).toEqual(['\uff5e', '😀']);
  });

  test('an empty directory has no entries', async () => {
    expect(await list(scratch())).toEqual([]);
  });

  test('more entries than one batch are returned once each', async () => {
    const root = scratch();
    const names = Array.from({ length: 1234 }, (_, index) => String(index).padStart(4, '0'));
    for (const name of names) writeFileSync(join(root, name), '');
    expect((await list(root)).map(({ name }) => name)).toEqual(names);
    const batches = await Array.fromAsync(listDir(root, 0, testEntries(scratch())));
    expect(Math.max(...batches.map((batch) => batch.length))).toBeLessThanOrEqual(500);
  });

  test('large entries are in small batches, and their bytes are told', async () => {
    const root = scratch('/dev/shm');
    for (let index = 0; index < 20; index++) {
      const path = join(root, String(index));
      writeFileSync(path, '');
      setAttributeSync(path, 'user.svc.large', 'x'.repeat(60_000));
    }
    let bytes = 0;
    const keep = (more: number) => {
      bytes += more;
    };
    const batches = await Array.fromAsync(listDir(root, 1, testEntries(scratch()), keep));
    expect(Math.max(...batches.map((batch) => batch.length))).toBeLessThanOrEqual(3);
    expect(bytes).toBeGreaterThan(20 * 60_000);
  });
});

describe('entries', () => {
  test('equal those of Stat', async () => {
    const root = scratch();
    writeFileSync(join(root, 'file'), 'abc');
    chmodSync(join(root, 'file'), 0o4711);
    setAttributeSync(join(root, 'file'), 'user.svc.k', 'v');
    symlinkSync('file', join(root, 'link'));
    symlinkSync('nowhere', join(root, 'dangling'));
    expect(await list(root)).toMatchObject([
      { name: 'dangling', type: 'unspecified', mode: 0, symlinkTarget: join(root, 'dangling') },
      { name: 'file', type: 'file', size: 3n, mode: 0o711, permissions: 'urwx--x--x', metadata: { k: 'v' } },
      { name: 'link', type: 'file', mode: 0o711, symlinkTarget: join(root, 'file'), metadata: { k: 'v' } },
    ]);
  });

  test('may have any characters in their names', async () => {
    const root = scratch();
    const names = ['\n', ' ', '"', '\\', 'n'.repeat(255)];
    for (const name of names) writeFileSync(join(root, name), '');
    expect((await list(root)).map(({ name }) => name)).toEqual(names);
  });

  test('with names that are not UTF-8 are shown reversibly, and accessed by their bytes', async () => {
    const root = Buffer.from(scratch());
    const bad = (...rest: number[]) => Buffer.concat([root, Buffer.from([0x2f, ...rest])]);
    mkdirSync(bad(0xff, 0x64));
    writeFileSync(bad(0xff, 0x64, 0x2f, 0xfe), 'abcd');
    writeFileSync(bad(0xff, 0x66), 'ab');
    expect(await list(root.toString(), 9)).toMatchObject([
      { name: '\uefffd', type: 'directory' },
      { name: '\ueffe', type: 'file', size: 4n, path: `${root}/\uefffd/\ueffe` },
      { name: '\ueffff', type: 'file', size: 2n },
    ]);
  });
});

describe('links', () => {
  test('below the directory are not followed', async () => {
    const root = tree();
    symlinkSync('b', join(root, 'link'));
    symlinkSync('.', join(root, 'loop'));
    const entries = await list(root, 9);
    expect(entries.find(({ name }) => name === 'link')).toMatchObject({ type: 'directory' });
    expect(entries.filter(({ path }) => /\/(link|loop)\//.test(path))).toEqual([]);
  });

  test('to the directory itself are followed, and the paths start with the requested one', async () => {
    const root = scratch();
    mkdirSync(join(root, 'real/sub'), { recursive: true });
    writeFileSync(join(root, 'real/sub/file'), '');
    symlinkSync('real', join(root, 'one'));
    symlinkSync('one', join(root, 'two'));
    expect(await listPaths(join(root, 'two'), 2)).toEqual([
      join(root, 'two/sub'),
      join(root, 'two/sub/file'),
    ]);
    expect(await listPaths(join(root, 'two/sub'))).toEqual([join(root, 'two/sub/file')]);
  });
});

describe('the root directory', () => {
  test('has paths with a single slash', async () => {
    const paths = await listPaths('/');
    expect(paths).toContain('/proc');
    expect(paths.every((path) => /^\/[^/]+$/.test(path))).toBe(true);
  });
});

describe('errors', () => {
  test.each([
    ['nothing', 'not_found', 'path not found'],
    ['dangling', 'not_found', 'path not found'],
    ['file/below', 'not_found', 'path not found'],
    ['file', 'invalid_argument', 'path is not a directory'],
    ['to-file', 'invalid_argument', 'path is not a directory'],
    ['cycle', 'failed_precondition', 'too many levels of symbolic links in path'],
  ])('%s', async (name, kind, text) => {
    const root = scratch();
    writeFileSync(join(root, 'file'), '');
    symlinkSync('file', join(root, 'to-file'));
    symlinkSync('cycle', join(root, 'cycle'));
    symlinkSync('nowhere', join(root, 'dangling'));
    await expect(list(join(root, name))).rejects.toMatchObject({
      kind,
      message: `${text}: '${join(root, name)}'`,
    });
  });

  test('a fifo is not opened, and refused as no directory', async () => {
    const path = join(scratch(), 'fifo');
    execFileSync('mkfifo', [path]);
    await expect(list(path)).rejects.toMatchObject({ kind: 'invalid_argument' });
  });
});

describe('trees that change, block or are very deep', () => {
  test('directories that are removed meanwhile are skipped', async () => {
    const root = scratch();
    for (let index = 0; index < 600; index++) mkdirSync(join(root, `d${index}/x`), { recursive: true });
    const found: Entry[] = [];
    for await (const batch of listDir(root, 2, testEntries(scratch()))) {
      found.push(...batch);
      for (const name of readdirSync(root).slice(0, 590)) rmSync(join(root, name), { recursive: true });
    }
    // The first level was already read; nothing below the removed directories is returned.
    expect(found.filter(({ name }) => name.startsWith('d'))).toHaveLength(600);
    expect(found.filter(({ name }) => name === 'x').length).toBeLessThan(600);
  });

  test('a directory that is replaced by a link is not followed', async () => {
    const [root, secret] = [scratch(), scratch()];
    writeFileSync(join(secret, 'secret'), '');
    for (let index = 100; index < 700; index++) mkdirSync(join(root, `d${index}`));
    const names: string[] = [];
    for await (const batch of listDir(root, 2, testEntries(scratch()))) {
      names.push(...batch.map(({ name }) => name));
      if (names.length > 500) continue;
      rmSync(join(root, 'd699'), { recursive: true });
      symlinkSync(secret, join(root, 'd699'));
    }
    expect(names).toContain('d699');
    expect(names).not.toContain('secret');
  });

  test('entries that are removed while the directory is read are skipped', async () => {
    const root = scratch();
    const files = Array.from({ length: 50 }, (_, index) => join(root, String(index)));
    const done = new AbortController();
    const churn = async () => {
      while (!done.signal.aborted) {
        await Promise.all(files.map((file) => writeFile(file, '')));
        await Promise.all(files.map((file) => unlink(file)));
      }
    };
    const churned = churn();
    let seen = 0;
    for (let round = 0; round < 40 || seen === 0; round++) {
      const entries = await list(root);
      seen += entries.length;
      expect(entries.filter(({ type }) => type !== 'file')).toEqual([]);
    }
    done.abort();
    await churned;
  });

  test('a FUSE mount whose server has ended is returned without attributes, and the others with', async () => {
    needs('fuse');
    const root = scratch();
    for (const name of ['dead', 'source', 'z']) mkdirSync(join(root, name));
    const server = spawn('bindfs', ['-f', '-o', 'attr_timeout=0', join(root, 'source'), join(root, 'dead')]);
    const { dev } = statSync(root);
    await expect.poll(() => statSync(join(root, 'dead')).dev).not.toBe(dev);
    onTestFinished(() => void execFileSync('umount', ['-l', join(root, 'dead')]));
    server.kill('SIGKILL');
    await once(server, 'exit');
    expect(await list(root, 9)).toMatchObject([
      { name: 'dead', type: 'unspecified', mode: 0, permissions: '?---------', size: 0n },
      { name: 'source' },
      { name: 'z' },
    ]);
    await expect(list(join(root, 'dead'))).rejects.toMatchObject({
      kind: 'failed_precondition',
      message: `file system is not connected at path: '${join(root, 'dead')}'`,
    });
  });

  test('/proc, whose entries come and go, and /sys are listed', async () => {
    const processes = await list('/proc', 2);
    expect(processes.length).toBeGreaterThan(100);
    expect((await list('/sys', 3)).length).toBeGreaterThan(50);
  });

  test('a tree with paths longer than the limit is listed as far as it can be', async () => {
    const root = scratch();
    const segment = 'd'.repeat(200);
    // Each level is entered by a relative path, so that the depth is not limited.
    const script = `cd ${root}; for i in $(seq 30); do mkdir ${segment}; cd ${segment}; done; touch end`;
    execFileSync('bash', ['-c', script]);
    const entries = await list(root, 100);
    // Entries of a directory whose path is too long for the kernel are left out.
    expect(entries).toHaveLength(Math.floor((4095 - root.length) / 201) + 1);
    expect(entries.every(({ type }) => type === 'directory')).toBe(true);
  });

  test('an entry whose path is too long for the kernel is returned', async () => {
    const root = scratch();
    let path = root;
    while (path.length < 3900) path = join(path, 'd'.repeat(190));
    mkdirSync(path, { recursive: true });
    const directory = openSync(path, 'r');
    onTestFinished(() => closeSync(directory));
    const file = `/proc/self/fd/${directory}/${'f'.repeat(255)}`;
    writeFileSync(file, 'abc');
    setAttributeSync(file, 'user.svc.k', 'v');
    symlinkSync('.', `/proc/self/fd/${directory}/link`);
    expect(await list(path)).toMatchObject([
      { name: 'f'.repeat(255), type: 'file', size: 3n, metadata: { k: 'v' } },
      { name: 'link', type: 'directory', symlinkTarget: path },
    ]);
  });
});
