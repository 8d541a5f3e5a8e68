import { chmodSync, mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { get as httpGet, type IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import { droppedArchives, filesUrl } from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
import { growthOf, openFiles } from '../../support/machine/proc.ts';
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { describeTree, makeTree, tar } from '../../support/services/tar-trees.ts';
import { until } from '../../support/until.ts';

/* A directory is downloaded as an archive, which Debian's tar unpacks. */

const MIB = 2 ** 20;

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
  mkdirSync(at('to'));
});

function download(
  path: string,
  query: Readonly<Record<string, string>> = {},
  init: RequestInit = {},
): Promise<Response> {
  const headers = { 'accept-encoding': 'identity' };
  return fetch(filesUrl(daemon, { path, format: 'tar', ...query }), { headers, ...init });
}

async function saved(answer: Response): Promise<string> {
  expect(answer.status).toBe(200);
  writeFileSync(at('archive'), Buffer.from(await answer.arrayBuffer()));
  return at('archive');
}

/** Names in the archive `path`. */
const namesIn = (path: string) => tar('-tf', path).toString().split('\n').slice(0, -1);

/** The response without its body read. */
async function opened(path: string): Promise<IncomingMessage> {
  const { promise, resolve } = Promise.withResolvers<IncomingMessage>();
  httpGet(filesUrl(daemon, { path, format: 'tar' }), resolve);
  return promise;
}

/** The body as far as it comes, and whether it was complete. */
async function readAll(answer: IncomingMessage): Promise<{ body: Buffer; isComplete: boolean }> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of answer) pieces.push(piece);
  } catch {
    // Told by `complete`.
  }
  return { body: Buffer.concat(pieces), isComplete: answer.complete };
}

describe('a downloaded archive', () => {
  test('has all that the directory has', async () => {
    needs('root');
    makeTree(at('from'));
    tar('-C', at('to'), '-xpf', await saved(await download(at('from'))));
    expect(describeTree(at('to'))).toEqual(describeTree(at('from')));
  });

  test('has the names that tar itself would store', async () => {
    makeTree(at('from'));
    const names = namesIn(await saved(await download(at('from'))));
    expect(new Set(names)).toEqual(
      new Set(tar('-C', at('from'), '-cf', at('own'), '.') && namesIn(at('own'))),
    );
  });

  test('is compressed as other downloads are, or as a file of its own', async () => {
    writeFileSync(at('from/file'), 'x'.repeat(100_000));
    const coded = await download(at('from'), {}, { headers: { 'accept-encoding': 'gzip' } });
    expect(coded.headers.get('content-encoding')).toBe('gzip');
    expect(coded.headers.get('content-type')).toBe('application/x-tar');
    expect(namesIn(await saved(coded))).toEqual(['./', './file']);
    const file = await download(at('from'), { format: 'tar.gz' });
    expect(file.headers.get('content-encoding')).toBeNull();
    expect(file.headers.get('content-type')).toBe('application/gzip');
    expect(file.headers.get('content-disposition')).toBe('inline; filename=from.tar.gz');
    const compressed = Buffer.from(await file.arrayBuffer());
    expect(compressed.length).toBeLessThan(10_000);
    writeFileSync(at('archive'), gunzipSync(compressed));
    expect(namesIn(at('archive'))).toEqual(['./', './file']);
  });

  test('does not follow links below, but one at the path', async () => {
    mkdirSync(at('other'));
    writeFileSync(at('other/secret'), '');
    symlinkSync('../other', at('from/link'));
    symlinkSync('from', at('alias'));
    expect(namesIn(await saved(await download(at('alias'))))).toEqual(['./', './link']);
  });

  test('has no sockets, and of a file system of the kernel only its directory', async () => {
    const server = createServer().listen(at('from/socket'));
    expect(namesIn(await saved(await download(at('from'))))).toEqual(['./']);
    server.close();
    expect(await (await download('/proc')).json()).toEqual({
      code: 400,
      message: "path is a file system of the kernel: '/proc'",
    });
  });

  test('is well-formed but incomplete when files are truncated meanwhile', async () => {
    // More than the connection holds: the first one is being sent when its first bytes arrive.
    const names = ['a', 'b', 'c'].map((name) => at('from', name));
    for (const name of names) writeFileSync(name, Buffer.alloc(32 * MIB, 'x'));
    const answer = await opened(at('from'));
    answer.once('data', () => {
      for (const name of names) truncateSync(name, 0);
    });
    const { body, isComplete } = await readAll(answer);
    writeFileSync(at('archive'), body);
    // The archive is well-formed, and the broken connection tells that it is not what it should be.
    expect(namesIn(at('archive')).length).toBe(4);
    expect(isComplete).toBe(false);
    await until(
      'the reason is logged',
      () => daemon.log.map((line) => JSON.stringify(line)).join('\n'),
      (log) => log.includes('archive is incomplete: file was truncated, or could not be read'),
    );
  });

  test('of too deep a tree is incomplete, and says so', async () => {
    mkdirSync(at('from', ...Array<string>(300).fill('d')), { recursive: true });
    writeFileSync(at('from/file'), '');
    const { body, isComplete } = await readAll(await opened(at('from')));
    writeFileSync(at('archive'), body);
    expect(namesIn(at('archive')).length).toBe(258);
    expect(isComplete).toBe(false);
  });
});

describe('refusals', () => {
  test.each([
    ['a file', 'file', { format: 'tar' }, 400, "path is not a directory: '%s'"],
    ['a missing directory', 'missing', { format: 'tar' }, 404, "path not found: '%s'"],
    ['another format', '', { format: 'rar' }, 400, "format must be one of tar, tar.gz, zip, not 'rar'"],
  ])('%s', async (_, name, query, code, message) => {
    writeFileSync(at('from/file'), '');
    const answer = await download(at('from', name), query);
    expect(await answer.json()).toEqual({ code, message: message.replace('%s', at('from', name)) });
    expect((await download(at('from', name), query, { method: 'HEAD' })).status).toBe(code);
  });

  test('HEAD has the headers of GET and leaves nothing open', async () => {
    writeFileSync(at('from/file'), Buffer.alloc(MIB));
    const answer = await download(at('from'), {}, { method: 'HEAD' });
    expect(answer.status).toBe(200);
    expect(answer.headers.get('content-type')).toBe('application/x-tar');
    expect(await answer.text()).toBe('');
    await expect.poll(() => openFiles(daemon.pid).filter((path) => path.startsWith(top))).toEqual([]);
  });

  test('without the token only a signature of the path for archives', async () => {
    await using own = await startDaemon();
    const token = 'secret';
    const init = { method: 'POST', body: JSON.stringify({ accessToken: token }) };
    await fetch(`${own.url}/init`, { ...init, headers: { 'content-type': 'application/json' } });
    const path = at('from');
    const signed = (operation: 'read' | 'read-archive') => signFile({ path, operation, username: '', token });
    const signature = signed('read-archive');
    const statuses = [
      {},
      { signature },
      { signature: `${signature}x` },
      { signature: signed('read') },
      { signature: signed('read'), format: 'tar.gz' },
      { signature, format: '' },
    ].map(async (query) => {
      const answer = await fetch(filesUrl(own, { path, format: 'tar', ...query }));
      return answer.status;
    });
    expect(await Promise.all(statuses)).toEqual([401, 200, 401, 401, 401, 400]);
  });
});

describe('bounds', () => {
  const allGivenBack = () =>
    until(
      'no directory is open',
      () => openFiles(daemon.pid),
      (open) => open.every((path) => !path.startsWith(top)),
    );

  test('a large directory takes little memory, and so does a client that does not read', async () => {
    for (let index = 0; index < 20_000; index++) writeFileSync(at('from', `file-${index}`), 'x'.repeat(1000));
    chmodSync(at('from'), 0o755);
    await saved(await download(at('from')));
    const growth = await growthOf(daemon.pid, async () => {
      const stalled = await Promise.all(Array.from({ length: 8 }, () => opened(at('from'))));
      const answer = await download(at('from'));
      for await (const _ of answer.body ?? []);
      for (const each of stalled) each.destroy();
    });
    expect(growth).toBeLessThan(96 * MIB);
    await allGivenBack();
  });

  test('at most 16 archives at a time, while their clients do not stall', async () => {
    for (let index = 0; index < 3000; index++) writeFileSync(at('from', `file-${index}`), 'x'.repeat(8000));
    const before = droppedArchives(daemon);
    const all = await Promise.all(Array.from({ length: 24 }, () => opened(at('from'))));
    const [stalled, refused] = [200, 429].map((status) => all.filter((one) => one.statusCode === status));
    expect((stalled?.length ?? 0) + (refused?.length ?? 0)).toBe(24);
    // On a busy machine the first ones have stalled for long before the last one asks, which then gets the place of one of them.
    expect(stalled?.length).toBeGreaterThanOrEqual(16);
    await until('no more than 16 have places', () => {
      const dropped = droppedArchives(daemon) - before;
      return (stalled?.length ?? 0) - dropped <= 16;
    });
    for (const each of refused ?? [])
      expect(await json(each)).toEqual({
        code: 429,
        message: 'more than 16 archives at a time in this direction: try again later',
      });
    for (const each of all) each.destroy();
    await allGivenBack();
    expect((await download(at('from'))).status).toBe(200);
  });
});
