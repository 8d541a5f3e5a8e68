import { randomBytes } from 'node:crypto';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { AuthenticationError, FileNotFoundError, FileType, InvalidArgumentError } from 'e2b';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Guest, rejection, rejections, startGuest } from '../support/programs/sandbox.ts';

let guest: Guest;
let files: Guest['sandbox']['files'];
let count = 0;
beforeAll(async () => {
  guest = await startGuest();
  files = guest.sandbox.files;
});
afterAll(() => guest[Symbol.asyncDispose]());

/** A path that does not exist yet, in a directory of its own. */
const fresh = (name: string) => join(guest.directory, `${++count}`, name);

/** `bytes` as a stream of pieces. */
function streamOf(bytes: Uint8Array, piece = 50_000): ReadableStream<Uint8Array> {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, at + piece));
      at += piece;
    },
  });
}

const plain = (bytes: Uint8Array): ArrayBuffer => Uint8Array.from(bytes).buffer;
const MEGABYTE = randomBytes(1 << 20);

describe('writing and reading', () => {
  test('text is read as it was written', async () => {
    const path = fresh('note ü.txt');
    expect(await files.write(path, 'hällo')).toEqual({ name: 'note ü.txt', path, type: 'file' });
    expect(await files.read(path)).toBe('hällo');
    await files.write(path, 'shorter');
    expect(await files.read(path)).toBe('shorter');
  });

  test('an empty file is read as empty', async () => {
    const path = fresh('empty');
    await files.write(path, '');
    expect(await files.read(path)).toBe('');
    expect(await files.read(path, { format: 'bytes' })).toEqual(new Uint8Array(0));
  });

  test.each([
    ['as a form', {}],
    ['as raw bytes', { useOctetStream: true }],
    ['compressed', { gzip: true }],
  ])('bytes are read as they were written: %s', async (_name, opts) => {
    const path = fresh('data.bin');
    expect(await files.write(path, plain(MEGABYTE), opts)).toMatchObject({ path });
    expect(MEGABYTE.equals(await files.read(path, { format: 'bytes' }))).toBe(true);
    expect(MEGABYTE.equals(await files.read(path, { format: 'bytes', gzip: true }))).toBe(true);
  });

  test.each([
    ['plain', {}],
    ['compressed', { gzip: true }],
  ])('streams are read and written: %s', async (_name, opts) => {
    const path = fresh('streamed.bin');
    await files.write(path, streamOf(MEGABYTE), opts);
    const pieces: Uint8Array[] = [];
    for await (const piece of await files.read(path, { format: 'stream', ...opts })) pieces.push(piece);
    expect(MEGABYTE.equals(Buffer.concat(pieces))).toBe(true);
  });

  test('a blob is read as it was written', async () => {
    const path = fresh('blob');
    await files.write(path, new Blob(['blob ', 'content']));
    const blob = await files.read(path, { format: 'blob' });
    expect(await blob.text()).toBe('blob content');
  });

  test.each([
    ['as a form', {}],
    ['compressed', { gzip: true }],
  ])('many files are written in one call: %s', async (_name, opts) => {
    const entries = ['a.txt', 'deep/er/b.txt', 'c "quoted".txt'].map((name) => ({
      path: fresh(name),
      data: `content of ${name}`,
    }));
    const written = await files.writeFiles(entries, opts);
    expect(written.map(({ path }) => path)).toEqual(entries.map(({ path }) => path));
    for (const { path, data } of entries) expect(await files.read(path)).toBe(data);
  });

  test('relative paths are below the home directory of the user', async () => {
    const [name] = [`envd-test-${process.pid}-${Date.now()}.txt`];
    const { path } = await files.write(name, 'at home');
    try {
      expect(path).toBe(`/root/${name}`);
      expect(await files.read(`~/${name}`)).toBe('at home');
    } finally {
      await files.remove(name);
    }
  });

  test('a file of another user belongs to that user', async () => {
    const path = fresh('daemon.txt');
    await files.write(path, 'x', { user: 'daemon' });
    expect(await files.getInfo(path)).toMatchObject({ owner: 'daemon', group: 'daemon' });
    expect(await files.getInfo(join(path, '..'))).toMatchObject({ owner: 'daemon', mode: 0o755 });
  });

  test('an interrupted upload keeps the old content', async () => {
    const path = fresh('kept.txt');
    await files.write(path, 'old');
    const abort = new AbortController();
    let pieces = 0;
    const endless = new ReadableStream<Uint8Array>({
      pull(controller) {
        // By then the client has taken some pieces; the next one never arrives.
        if (++pieces > 5) return void abort.abort();
        controller.enqueue(new Uint8Array(100_000));
      },
    });
    await rejection(files.write(path, endless, { signal: abort.signal }));
    expect(await files.read(path)).toBe('old');
    expect(await files.list(join(path, '..'))).toHaveLength(1);
  });
});

describe('metadata', () => {
  const metadata = { author: 'Ada', 'content-kind': 'note; with = signs' };

  test.each([
    ['as a form', {}],
    ['as raw bytes', { useOctetStream: true }],
  ])('is stored with the file, uploaded %s', async (_name, opts) => {
    const path = fresh('tagged.txt');
    expect(await files.write(path, 'x', { metadata, ...opts })).toMatchObject({ metadata });
    expect((await files.getInfo(path)).metadata).toEqual(metadata);
    expect((await files.list(join(path, '..')))[0]?.metadata).toEqual(metadata);
    expect((await files.rename(path, `${path}2`)).metadata).toEqual(metadata);
  });

  test('is replaced by the next upload', async () => {
    const path = fresh('tagged.txt');
    await files.write(path, 'x', { metadata });
    await files.write(path, 'x', { metadata: { Author: 'Bob' } });
    expect((await files.getInfo(path)).metadata).toEqual({ author: 'Bob' });
    await files.write(path, 'x');
    expect((await files.getInfo(path)).metadata).toBeUndefined();
  });

  test('is refused when it is too long', async () => {
    const error = await rejection(files.write(fresh('x'), 'x', { metadata: { big: 'x'.repeat(5000) } }));
    expect(error).toBeInstanceOf(InvalidArgumentError);
  });
});

describe('entries', () => {
  test('getInfo describes a file', async () => {
    const path = fresh('described.txt');
    const before = Date.now();
    await files.write(path, 'twelve bytes');
    const { modifiedTime, ...info } = await files.getInfo(path);
    expect(info).toEqual({
      name: 'described.txt',
      type: FileType.FILE,
      path,
      size: 12,
      mode: 0o644,
      permissions: '-rw-r--r--',
      owner: 'root',
      group: 'root',
      symlinkTarget: undefined,
      metadata: undefined,
    });
    // The kernel stamps files with a clock that lags by up to a tick.
    expect(modifiedTime?.getTime()).toBeGreaterThan(before - 1000);
    expect(modifiedTime?.getTime()).toBeLessThanOrEqual(Date.now());
  });

  test('getInfo describes directories and links', async () => {
    const directory = fresh('dir');
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'target'), 'x');
    symlinkSync('target', join(directory, 'link'));
    expect(await files.getInfo(directory)).toMatchObject({ type: FileType.DIR, permissions: 'drwxr-xr-x' });
    expect(await files.getInfo(join(directory, 'link'))).toMatchObject({
      name: 'link',
      type: FileType.FILE,
      permissions: 'Lrwxrwxrwx',
      symlinkTarget: join(directory, 'target'),
    });
  });

  test('list returns the requested number of levels', async () => {
    const directory = fresh('tree');
    const names = ['b.txt', 'a/two.txt', 'a/z/three.txt'];
    await files.writeFiles(names.map((name) => ({ path: join(directory, name), data: name })));
    const listed = async (depth?: number) =>
      (await files.list(directory, depth ? { depth } : {})).map(({ path, type }) => {
        return `${path.slice(directory.length + 1)}${type === FileType.DIR ? '/' : ''}`;
      });
    expect(await listed()).toEqual(['a/', 'b.txt']);
    expect(await listed(2)).toEqual(['a/', 'a/two.txt', 'a/z/', 'b.txt']);
    expect((await listed(3)).sort()).toEqual(['a/', 'a/two.txt', 'a/z/', 'a/z/three.txt', 'b.txt']);
    expect(await rejection(files.list(directory, { depth: 0 }))).toBeInstanceOf(InvalidArgumentError);
  });

  test('makeDir makes missing parents and returns whether it made the directory', async () => {
    const directory = fresh('p/q/r');
    expect(await files.makeDir(directory)).toBe(true);
    expect(await files.makeDir(directory)).toBe(false);
    expect(await files.exists(directory)).toBe(true);
  });

  test('rename moves, also into missing directories', async () => {
    const from = fresh('from.txt');
    const to = fresh('new/place/to.txt');
    await files.write(from, 'moved');
    expect(await files.rename(from, to)).toMatchObject({ name: 'to.txt', path: to, type: FileType.FILE });
    expect(await files.exists(from)).toBe(false);
    expect(await files.read(to)).toBe('moved');
  });

  test('remove deletes trees, and a missing path is no error', async () => {
    const directory = fresh('gone');
    await files.write(join(directory, 'a/b/c.txt'), 'x');
    await files.remove(directory);
    expect(await files.exists(directory)).toBe(false);
    await files.remove(directory);
  });
});

describe('errors', () => {
  test('a missing path is a FileNotFoundError in every call', async () => {
    const path = '/missing/file.txt';
    const calls = [
      files.read(path),
      files.read(path, { format: 'bytes', gzip: true }),
      files.read(path, { format: 'stream' }),
      files.getInfo(path),
      files.list(path),
      files.rename(path, '/tmp/x'),
      files.watchDir(path, () => {}),
    ];
    for (const error of await rejections(calls)) {
      expect(error).toBeInstanceOf(FileNotFoundError);
      expect(String(error)).toContain(path);
    }
    expect(await files.exists(path)).toBe(false);
  });

  test('a directory in place of a file, and the reverse, is an error', async () => {
    const path = fresh('file');
    await files.write(path, 'x');
    const calls = [
      files.read(guest.directory),
      files.write(guest.directory, 'x'),
      files.list(path),
      files.makeDir(path),
      files.watchDir(path, () => {}),
    ];
    for (const error of await rejections(calls)) expect(error).toBeInstanceOf(InvalidArgumentError);
  });

  test('an unknown user is an error', async () => {
    const opts = { user: 'nobody-here' };
    for (const error of await rejections([files.read('/etc/passwd', opts), files.getInfo('/etc', opts)])) {
      expect(error).toBeInstanceOf(AuthenticationError);
    }
  });
});
