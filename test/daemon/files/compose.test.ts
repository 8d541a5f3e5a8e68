import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  linkSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { connectTo } from '../../support/clients/clients.ts';
import { mountTmpfs } from '../../support/machine/mounts.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let directory: string;
const at = (name: string) => join(directory, name);

beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  directory = scratch();
});

function compose(body: unknown): Promise<Response> {
  return fetch(`${daemon.url}/files/compose`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

const join3 = (destination: string) => ({ source_paths: ['a', 'b', 'c'].map(at), destination });

function writeSources(): Buffer {
  const contents = [randomBytes(1_000_000), Buffer.alloc(0), randomBytes(300_001)];
  for (const [index, content] of contents.entries()) writeFileSync(at('abc'.charAt(index)), content);
  return Buffer.concat(contents);
}

test('the sources are joined into one file and removed', async () => {
  const content = writeSources();
  const response = await compose({ ...join3(at('deep/down')), username: 'daemon' });
  expect(response.status).toBe(200);
  expect(response.headers.get('cache-control')).toBe('no-store');
  expect(await response.json()).toEqual({ path: at('deep/down'), name: 'down', type: 'file' });
  expect(content.equals(readFileSync(at('deep/down')))).toBe(true);
  expect(statSync(at('deep/down'))).toMatchObject({ uid: 1, gid: 1 });
  expect(statSync(at('deep/down')).mode & 0o7777).toBe(0o644);
  expect(readdirSync(directory)).toEqual(['deep']);
});

test('a source may be listed twice', async () => {
  writeFileSync(at('a'), '1');
  writeFileSync(at('b'), '2');
  expect((await compose({ source_paths: [at('a'), at('b'), at('a')], destination: at('d') })).status).toBe(
    200,
  );
  expect(readFileSync(at('d'), 'utf8')).toBe('121');
  expect(readdirSync(directory)).toEqual(['d']);
});

test('an existing destination is replaced atomically and keeps its mode', async () => {
  const content = writeSources();
  writeFileSync(at('d'), 'old');
  chmodSync(at('d'), 0o600);
  const { ino } = statSync(at('d'));
  symlinkSync('d', at('link'));
  expect((await compose(join3(at('link')))).status).toBe(200);
  expect(content.equals(readFileSync(at('d')))).toBe(true);
  expect(statSync(at('d')).mode & 0o7777).toBe(0o600);
  expect(statSync(at('d')).ino).not.toBe(ino);
  expect(readdirSync(directory)).toEqual(['d', 'link']);
});

test('a new destination is complete when it appears', async () => {
  writeSources();
  const seen: string[] = [];
  for await (const { event } of connectTo(daemon.url).filesystem.watchDir({ path: directory })) {
    if (event?.case === 'start') await compose(join3(at('d')));
    if (event?.case !== 'filesystem') continue;
    seen.push(`${EventType[event.value.type]} ${event.value.name}`);
    if (event.value.name === 'c') break;
  }
  expect(seen).toEqual(['CREATE d', 'CHMOD d', 'WRITE d', 'REMOVE a', 'REMOVE b', 'REMOVE c']);
});

test('sources may be on other file systems; one in /proc is read, but 403 as it cannot be deleted', async () => {
  const other = join(mountTmpfs('1m'), 'far');
  writeFileSync(other, 'far away ');
  const comm = `/proc/${daemon.pid}/comm`;
  const response = await compose({ source_paths: [other, comm], destination: at('d') });
  // The file of /proc was read, but cannot be deleted.
  expect(response.status).toBe(403);
  expect(readFileSync(at('d'), 'utf8')).toBe(`far away ${readFileSync(comm, 'utf8')}`);
  expect(existsSync(other)).toBe(false);
});

test.each([
  ['no JSON', '{"source_paths"', 400, 'JSON'],
  ['no object', '7', 400, 'request body must be an object'],
  ['no list', { source_paths: 'a', destination: 'd' }, 400, 'source_paths must be an array'],
  ['no paths', { source_paths: [1], destination: 'd' }, 400, 'source_paths[0] must be a string without NUL'],
  [
    'an empty list',
    { source_paths: [], destination: 'd' },
    400,
    'source_paths must be an array that is not empty',
  ],
  ['no destination', { source_paths: ['a'] }, 400, 'destination must be a string that is not empty'],
  ['an unknown user', { source_paths: ['a'], destination: 'd', username: 'ghost' }, 401, "user 'ghost'"],
])('%s is refused', async (_name, body, status, message) => {
  const response = await compose(body);
  expect(await response.json()).toEqual({ code: status, message: expect.stringContaining(message) });
});

test('a refused request changes nothing', async () => {
  const content = writeSources();
  linkSync(at('b'), at('same-as-b'));
  execFileSync('mkfifo', [at('pipe')]);
  const before = readdirSync(directory);
  const cases = [
    [
      { ...join3(at('d')), source_paths: [at('a'), at('gone')] },
      404,
      `source '${at('gone')}' does not exist`,
    ],
    [
      { ...join3(at('d')), source_paths: [at('a'), directory] },
      400,
      `source '${directory}' is not a regular file`,
    ],
    [{ ...join3(at('d')), source_paths: [at('pipe')] }, 400, `source '${at('pipe')}' is not a regular file`],
    [join3(at('b')), 400, `source '${at('b')}' is the destination`],
    [join3(at('same-as-b')), 400, `source '${at('b')}' is the destination`],
    [join3(directory), 400, `path is a directory: ${directory}`],
    [join3(at('pipe')), 400, `destination '${at('pipe')}' is not a regular file`],
    [join3(at('a/below')), 400, 'not a directory'],
  ] as const;
  for (const [body, code, message] of cases) {
    const response = await compose(body);
    expect(await response.json()).toEqual({ code, message: expect.stringContaining(message) });
    expect(readdirSync(directory)).toEqual(before);
  }
  expect(content.equals(Buffer.concat(['a', 'b', 'c'].map((name) => readFileSync(at(name)))))).toBe(true);
});

test('a full disk keeps sources and destination', async () => {
  const tmpfs = mountTmpfs('1m');
  const content = writeSources();
  writeFileSync(join(tmpfs, 'd'), 'old');
  const response = await compose(join3(join(tmpfs, 'd')));
  expect(await response.json()).toEqual({
    code: 507,
    message: `attempted to write ${content.length} bytes: not enough disk space available`,
  });
  expect(readFileSync(join(tmpfs, 'd'), 'utf8')).toBe('old');
  expect(readdirSync(tmpfs)).toEqual(['d']);
  expect(readdirSync(directory)).toEqual(['a', 'b', 'c']);
});
