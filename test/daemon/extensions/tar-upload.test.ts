import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { filesUrl, openRequest, post, uploadHead } from '../../support/clients/files-client.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { needs } from '../../support/machine/needs.ts';
import { openFiles } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { describeTree, makeTree, tar } from '../../support/services/tar-trees.ts';
import { until } from '../../support/until.ts';

/* An archive, made by Debian's tar or by the daemon, is unpacked in a directory. */

const TAR = { 'content-type': 'application/x-tar' };

let daemon: TestDaemon;
let top: string;
const at = (...names: readonly string[]) => join(top, ...names);

beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  top = scratch();
  mkdirSync(at('from'));
});

const upload = (archive: Uint8Array, query: Readonly<Record<string, string>> = {}, headers = TAR) =>
  post(daemon, { path: at('to'), ...query }, headers, Buffer.from(archive));

/** The answer to an archive of `from`, made by tar with these options. */
async function transfer(...options: readonly string[]): Promise<Record<string, unknown>> {
  const answer = await upload(tar(...options, '-C', at('from'), '-cf', '-', '.'));
  return (await answer.json()) as Record<string, unknown>;
}

/** What is described, without the directory itself, whose mode and time are kept, and without the fifo. */
function below(root: string): Record<string, unknown> {
  const { '': _, '/fifo': __, ...entries } = describeTree(root);
  return entries;
}

describe('an archive is unpacked', () => {
  test('as it was packed by the daemon', async () => {
    needs('root');
    makeTree(at('from'));
    chmodSync(at('from/big'), 0o755);
    const archive = await fetch(filesUrl(daemon, { path: at('from'), format: 'tar' }));
    const answer = await upload(new Uint8Array(await archive.arrayBuffer()));
    expect(await answer.json()).toEqual({
      path: at('to'),
      files: 308,
      directories: 4,
      links: 5,
      bytes: 66_228_560,
      skipped: 1,
    });
    expect(below(at('to'))).toEqual(below(at('from')));
    expect(statSync(at('to/sparse')).blocks).toBeLessThan(1000);
  });

  test.each([
    ['0.0', '--format=posix', '--sparse-version=0.0'],
    ['0.1', '--format=posix', '--sparse-version=0.1'],
    ['1.0', '--format=posix', '--sparse-version=1.0'],
    ['of GNU', '--format=gnu'],
  ])('unless a file is stored as tar’s sparse format %s, which is refused', async (_, ...options) => {
    writeFileSync(at('from/holes'), '');
    truncateSync(at('from/holes'), 1024 ** 2);
    const answer = await upload(
      tar('--no-xattrs', '-C', at('from'), '--sparse', ...options, '-cf', '-', '.'),
    );
    expect(answer.status).toBe(400);
    expect(await answer.text()).toContain("holes' of the archive: sparse files cannot be unpacked");
    expect(readdirSync(at('to'))).toEqual([]);
  });

  test('of tar’s format posix', async () => {
    needs('root');
    makeTree(at('from'));
    chmodSync(at('from/big'), 0o755);
    expect(await transfer('--format=posix')).toMatchObject({ files: 308 });
    expect(below(at('to'))).toEqual(below(at('from')));
  });

  test.each(['gnu', 'oldgnu'])(
    'of tar’s format %s, with whole seconds and without attributes',
    async (format) => {
      needs('root');
      makeTree(at('from'));
      chmodSync(at('from/big'), 0o755);
      const archive = tar('--no-xattrs', '-C', at('from'), `--format=${format}`, '-cf', '-', '.');
      expect(await (await upload(archive)).json()).toMatchObject({ files: 308 });
      mkdirSync(at('own'));
      writeFileSync(at('archive'), archive);
      tar('-C', at('own'), '-xpf', at('archive'));
      expect(below(at('to'))).toEqual(below(at('own')));
    },
  );

  test.each(['ustar', 'v7'])('of tar’s format %s', async (format) => {
    mkdirSync(at('from/d'));
    writeFileSync(at('from/d/file'), 'content');
    symlinkSync('file', at('from/d/link'));
    expect(await transfer(`--format=${format}`)).toMatchObject({ files: 1, directories: 1, links: 1 });
    expect(readFileSync(at('to/d/link'), 'utf8')).toBe('content');
  });

  test.each([
    ['a coding', { ...TAR, 'content-encoding': 'gzip' }],
    ['a type', { 'content-type': 'application/gzip' }],
  ])('compressed, as %s', async (_, headers) => {
    writeFileSync(at('from/file'), 'x'.repeat(100_000));
    const archive = gzipSync(tar('-C', at('from'), '-cf', '-', '.'));
    expect((await upload(archive, {}, headers)).status).toBe(200);
    expect(describeTree(at('to/file'))).toEqual(describeTree(at('from/file')));
  });

  test('as files of the user, unless that is root', async () => {
    needs('root');
    mkdirSync(at('from/d'));
    writeFileSync(at('from/d/file'), 'x');
    symlinkSync('file', at('from/d/link'));
    for (const name of ['d', 'd/file']) chownSync(at('from', name), 4711, 4712);
    chmodSync(at('from/d'), 0o2775);
    chmodSync(at('from/d/file'), 0o6755);
    const archive = tar('-C', at('from'), '-cf', '-', '.');
    chmodSync(daemon.scratch, 0o755);
    expect((await upload(archive, { username: 'nobody' })).status).toBe(200);
    const owners = (name: string) => {
      const { uid, gid, mode } = lstatSync(at('to', name));
      return [uid, gid, (mode & 0o7777).toString(8)];
    };
    expect(['.', 'd', 'd/file', 'd/link'].map(owners)).toEqual([
      [65_534, 65_534, '755'],
      [65_534, 65_534, '775'],
      [65_534, 65_534, '755'],
      [65_534, 65_534, '777'],
    ]);
    rmSync(at('to'), { recursive: true });
    expect((await upload(archive)).status).toBe(200);
    // Set-id bits of files are left out, as in every upload.
    expect(['d', 'd/file', 'd/link'].map(owners)).toEqual([
      [4711, 4712, '2775'],
      [4711, 4712, '755'],
      [0, 0, '777'],
    ]);
  });

  test('over what is there: files are replaced, directories kept', async () => {
    mkdirSync(at('from/d'));
    chmodSync(at('from/d'), 0o700);
    for (const name of ['d/file', 'over-link']) writeFileSync(at('from', name), 'new');
    symlinkSync('elsewhere', at('from/link'));
    mkdirSync(at('to/d'), { recursive: true });
    for (const name of ['d/file', 'd/kept', 'link', 'target']) writeFileSync(at('to', name), 'old');
    symlinkSync('target', at('to/over-link'));
    const before = lstatSync(at('to/d/file')).ino;
    expect(await transfer()).toMatchObject({ files: 2, directories: 0, links: 1 });
    const content = (name: string) => readFileSync(at('to', name), 'utf8');
    expect(['d/file', 'd/kept', 'over-link', 'target'].map(content)).toEqual(['new', 'old', 'new', 'old']);
    expect(readlinkSync(at('to/link'))).toBe('elsewhere');
    expect(lstatSync(at('to/d')).mode & 0o777).toBe(0o755);
    expect(lstatSync(at('to/d/file')).ino).not.toBe(before);
    expect(readdirSync(at('to')).filter((name) => name.startsWith('.envd'))).toEqual([]);
  });

  test('with the last of several entries of one name', async () => {
    for (const content of ['1', '2', '3']) {
      writeFileSync(at('from/file'), content);
      tar('-C', at('from'), '-rf', at('archive'), 'file');
    }
    expect((await upload(readFileSync(at('archive')))).status).toBe(200);
    expect(readFileSync(at('to/file'), 'utf8')).toBe('3');
  });
});

describe('refusals', () => {
  const archiveOf = (name: string, make: () => void) => {
    make();
    return tar('-P', '-C', at('from'), '-cf', '-', name);
  };

  test('a file where a directory is, and the other way round', async () => {
    mkdirSync(at('to/name'), { recursive: true });
    const file = archiveOf('name', () => writeFileSync(at('from/name'), ''));
    expect(await (await upload(file)).json()).toEqual({
      code: 400,
      message: `path is a directory: '${at('to/name')}'; unpacked before: 0 files (0 bytes), 0 directories and 0 links`,
    });
    rmSync(at('to/name'), { recursive: true });
    rmSync(at('from/name'));
    writeFileSync(at('to/name'), 'old');
    const directory = archiveOf('name', () => mkdirSync(at('from/name')));
    expect(await (await upload(directory)).json()).toMatchObject({
      code: 400,
      message: expect.stringContaining(`a part of the path is not a directory: '${at('to/name')}/'`),
    });
    expect(readdirSync(at('to'))).toEqual(['name']);
  });

  test.each<[string, Readonly<Record<string, string>>, Readonly<Record<string, string>>, string]>([
    ['no path', { path: '' }, {}, 'path is required with application/x-tar'],
    ['metadata', {}, { 'x-metadata-a': 'b' }, 'metadata in headers cannot be used with application/x-tar'],
    ['no archive', {}, {}, 'archive ends early, after 5 bytes'],
  ])('%s', async (_, query, headers, message) => {
    const answer = await upload(Buffer.from('hello'), query, { ...TAR, ...headers });
    expect(await answer.json()).toMatchObject({ code: 400, message: expect.stringContaining(message) });
  });

  test('a digest that does not match is told after all', async () => {
    writeFileSync(at('from/file'), 'x');
    const digest = { ...TAR, 'content-digest': `sha-256=:${Buffer.alloc(32).toString('base64')}:` };
    const answer = await upload(tar('-C', at('from'), '-cf', '-', '.'), {}, digest);
    expect(answer.status).toBe(400);
  });

  test('of an archive that ends early what was complete stays, and the answer tells it', async () => {
    for (const name of ['a', 'b', 'c']) writeFileSync(at('from', name), name.repeat(2000));
    const archive = tar('--format=ustar', '-C', at('from'), '-cf', '-', 'a', 'b', 'c');
    for (let length = 0; length <= 8192; length += 512) {
      const answer = await upload(archive.subarray(0, length));
      const complete = Math.min(3, Math.floor(length / 2560));
      expect(await answer.json()).toEqual(
        length > 7680
          ? expect.objectContaining({ files: 3 })
          : {
              code: 400,
              message: `archive ends early, after ${length} bytes; unpacked before: ${complete} files (${complete * 2000} bytes), 0 directories and 0 links`,
            },
      );
      expect(readdirSync(at('to'))).toEqual(['a', 'b', 'c'].slice(0, complete));
      rmSync(at('to'), { recursive: true });
    }
  });

  test('a full disk: what fitted stays, and nothing else', async () => {
    const disk = mountTmpfs('1m');
    for (const name of ['a', 'b', 'c']) writeFileSync(at('from', name), Buffer.alloc(400_000, name));
    const answer = await upload(tar('-C', at('from'), '-cf', '-', 'a', 'b', 'c'), { path: disk });
    expect(await answer.json()).toEqual({
      code: 507,
      message: `not enough disk space or inodes for path: '${disk}/c'; unpacked before: 2 files (800000 bytes), 0 directories and 0 links`,
    });
    expect(readdirSync(disk)).toEqual(['a', 'b']);
  });

  test('a client that goes away leaves no half file', async () => {
    writeFileSync(at('from/big'), Buffer.alloc(2 ** 20, 'x'));
    const archive = tar('-C', at('from'), '-cf', '-', 'big');
    const query = new URLSearchParams({ path: at('to') });
    const head = uploadHead(`${query}`, { ...TAR, 'content-length': archive.length });
    const client = await openRequest(daemon, head, archive.subarray(0, 600_000));
    const inTarget = () => openFiles(daemon.pid).filter((path) => path.startsWith(at('to')));
    await until('the file is being received', inTarget, (open) => open.some((path) => path.includes('#')));
    client.destroy();
    await until('nothing is open', inTarget, (open) => open.length === 0);
    expect(readdirSync(at('to'))).toEqual([]);
  });
});
