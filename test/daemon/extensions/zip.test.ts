import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  linkSync,
  mkdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/** Unpacks with Python, which checks sizes and checksums, and lists the members with their modes. */
const UNPACK = `
import json, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive:
    assert archive.testzip() is None
    archive.extractall(sys.argv[2])
    print(json.dumps({i.filename: [oct(i.external_attr >> 16), i.file_size, i.date_time[0]] for i in archive.infolist()}))
`;

let daemon: TestDaemon;
let top: string;
beforeAll(async () => {
  daemon = await startDaemon();
  top = join(daemon.scratch, 'top');
  mkdirSync(join(top, 'd/empty'), { recursive: true });
  writeFileSync(join(top, 'a'), 'one');
  chmodSync(join(top, 'a'), 0o755);
  utimesSync(join(top, 'a'), 0, 0);
  writeFileSync(join(top, 'd/empty file'), '');
  writeFileSync(join(top, 'd/ümläut'), Buffer.alloc(3_000_000, 'ab\n'));
  truncateSync(join(top, 'd/ümläut'), 9_000_000);
  symlinkSync('a', join(top, 'link'));
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});

const url = (path: string, query = '') =>
  `${daemon.url}/files?path=${encodeURIComponent(path)}&format=zip${query}`;
const sha = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex');
/** fetch() takes the coding away; without it, there is none. */
const plain = { headers: { 'accept-encoding': 'identity' } };

function unpacked(archive: Buffer): {
  readonly members: Record<string, unknown>;
  readonly directory: string;
} {
  const [file, directory] = [join(daemon.scratch, 'a.zip'), join(daemon.scratch, 'unpacked')];
  writeFileSync(file, archive);
  const members = JSON.parse(execFileSync('python3', ['-c', UNPACK, file, directory], { encoding: 'utf8' }));
  return { members, directory };
}

test('a directory as a zip archive: files and directories with their modes, without links', async () => {
  const response = await fetch(url(top), plain);
  expect(response.status).toBe(200);
  expect(response.headers.get('content-type')).toBe('application/zip');
  expect(response.headers.get('content-disposition')).toBe('attachment; filename=top.zip');
  const { members, directory } = unpacked(Buffer.from(await response.arrayBuffer()));
  expect(members).toEqual({
    a: ['0o100755', 3, 1980],
    'd/': ['0o40755', 0, expect.any(Number)],
    'd/empty/': ['0o40755', 0, expect.any(Number)],
    'd/empty file': ['0o100644', 0, expect.any(Number)],
    'd/ümläut': ['0o100644', 9_000_000, expect.any(Number)],
  });
  expect(sha(join(directory, 'd/ümläut'))).toBe(sha(join(top, 'd/ümläut')));
  expect(statSync(join(directory, 'd/empty file')).size).toBe(0);
});

test('it is compressed on its way where the client accepts that', async () => {
  const response = await fetch(url(top), { headers: { 'accept-encoding': 'gzip' } });
  expect(response.headers.get('content-encoding')).toBe('gzip');
  expect(Object.keys(unpacked(Buffer.from(await response.arrayBuffer())).members)).toHaveLength(5);
  const raw = await fetch(url(top), plain);
  expect(gunzipSync(execFileSync('curl', ['-sH', 'Accept-Encoding: gzip', url(top)])).length).toBe(
    (await raw.arrayBuffer()).byteLength,
  );
});

test('HEAD, files, missing paths, other formats and a repeated parameter', async () => {
  const head = await fetch(url(top), { method: 'HEAD' });
  expect([head.status, head.headers.get('content-type')]).toEqual([200, 'application/zip']);
  const status = async (path: string, query?: string) => (await fetch(url(path, query))).status;
  expect(await status(join(top, 'a'))).toBe(400);
  expect(await status(join(top, 'none'))).toBe(404);
  expect(await status(top, '&format=tar')).toBe(400);
  expect(await status(top, '&username=nobody-of-this-name')).toBe(401);
  expect((await fetch(`${daemon.url}/files?path=${top}&format=tar`)).headers.get('content-type')).toBe(
    'application/x-tar',
  );
});

test('more than 65,535 entries, and more than the memory allows, which are refused before the first byte', {
  timeout: 480_000,
}, async () => {
  const many = join(daemon.scratch, 'many');
  const plant = (directory: string, count: number) => {
    mkdirSync(directory, { recursive: true });
    const file = (number: number) => join(directory, `${'n'.repeat(200)}${number}`);
    writeFileSync(file(0), '');
    // Links are faster to make than files.
    for (let number = 1; number < count; number += 1) linkSync(file(0), file(number));
  };
  plant(many, 60_000);
  plant(join(many, 'more'), 6000);
  const response = await fetch(url(many), plain);
  const file = join(daemon.scratch, 'many.zip');
  writeFileSync(file, Buffer.from(await response.arrayBuffer()));
  const count = 'import sys, zipfile; print(len(zipfile.ZipFile(sys.argv[1]).namelist()))';
  expect(execFileSync('python3', ['-c', count, file], { encoding: 'utf8' })).toBe('66001\n');
  plant(join(many, 'too-many'), 40_000);
  for (const method of ['HEAD', 'GET'])
    expect((await fetch(url(many), { ...plain, method })).status).toBe(429);
  expect((await fetch(url(top), plain)).status).toBe(200);
});

test('with a token set it needs the token, or a signature for archives', async () => {
  await using secured = await startDaemon();
  const init = { method: 'POST', body: JSON.stringify({ accessToken: 'secret' }) };
  await fetch(`${secured.url}/init`, init);
  const at = `${secured.url}/files?path=${encodeURIComponent(top)}&format=zip`;
  const status = async (query: string, headers = {}) => (await fetch(at + query, { headers })).status;
  const signed = (operation: 'read' | 'read-archive') =>
    `&signature=${encodeURIComponent(signFile({ path: top, operation, username: '', token: 'secret' }))}`;
  expect(await status('')).toBe(401);
  expect(await status(signed('read'))).toBe(401);
  expect(await status(signed('read-archive'))).toBe(200);
  expect(await status('', { 'x-access-token': 'secret' })).toBe(200);
});

test('a file system of the kernel is refused, as for tar archives', async () => {
  for (const method of ['GET', 'HEAD']) {
    const response = await fetch(url('/proc'), { method });
    expect(response.status).toBe(400);
    if (method === 'GET')
      expect(await response.json()).toEqual({
        code: 400,
        message: "path is a file system of the kernel: '/proc'",
      });
  }
});
