import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { getAttributeSync, listAttributesSync } from 'fs-xattr';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { signFile } from '../../../src/conformance/suite/sign-file.ts';
import { EventType } from '../../../src/gen/filesystem/filesystem_pb.js';
import { connectTo } from '../../support/clients/clients.ts';
import {
  filePart,
  filesUrl,
  get,
  MULTIPART,
  multipartBody,
  openRequest,
  post,
  RAW,
  uploadHead,
  uploadParts,
  uploadRaw,
} from '../../support/clients/files-client.ts';
import { needs } from '../../support/machine/needs.ts';
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

async function failure(response: Response): Promise<{ code: number; message: string }> {
  expect(response.headers.get('content-type')).toBe('application/json; charset=utf-8');
  const body = (await response.json()) as { code: number; message: string };
  expect(body.code).toBe(response.status);
  return body;
}

const entry = (name: string) => ({ path: at(name), name: name.split('/').at(-1), type: 'file' });

describe('a raw upload', () => {
  test('makes a file of the user, and its missing directories', async () => {
    const response = await post(daemon, { path: at('a/b/new.txt'), username: 'daemon' }, RAW, 'content');
    expect(response.status).toBe(200);
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(await response.json()).toEqual([entry('a/b/new.txt')]);
    expect(readFileSync(at('a/b/new.txt'), 'utf8')).toBe('content');
    const { uid, gid } = statSync(at('a/b/new.txt'));
    expect(execFileSync('id', ['daemon'], { encoding: 'utf8' })).toContain(`uid=${uid}(daemon) gid=${gid}`);
    expect(statSync(at('a/b/new.txt')).mode & 0o7777).toBe(0o644);
    for (const made of ['a', 'a/b']) {
      expect(statSync(at(made))).toMatchObject({ uid, gid });
      expect(statSync(at(made)).mode & 0o7777).toBe(0o755);
    }
    expect(statSync(directory).uid).toBe(0);
  });

  test('with an empty body makes an empty file', async () => {
    expect((await uploadRaw(daemon, at('empty'), '')).status).toBe(200);
    expect((await uploadRaw(daemon, at('without-body'), null)).status).toBe(200);
    expect(statSync(at('empty')).size + statSync(at('without-body')).size).toBe(0);
  });

  test('of unknown length is stored whole', async () => {
    const pieces = [randomBytes(100_000), randomBytes(300_000), randomBytes(7)];
    const stream = new ReadableStream({
      start(controller) {
        for (const piece of pieces) controller.enqueue(piece);
        controller.close();
      },
    });
    expect((await uploadRaw(daemon, at('chunked'), stream)).status).toBe(200);
    expect(Buffer.concat(pieces).equals(readFileSync(at('chunked')))).toBe(true);
  });

  test('over a file keeps its inode, hard links and mode, and changes its owner to the user', async () => {
    writeFileSync(at('old'), 'a long old content');
    chmodSync(at('old'), 0o1751);
    linkSync(at('old'), at('hard-link'));
    const { ino } = statSync(at('old'));
    for (const content of ['short', 'a much longer content than before', '']) {
      const response = await post(daemon, { path: at('old'), username: 'daemon' }, RAW, content);
      expect(response.status).toBe(200);
      expect(readFileSync(at('hard-link'), 'utf8')).toBe(content);
      expect(statSync(at('old'))).toMatchObject({ ino, nlink: 2, uid: 1 });
      expect(statSync(at('old')).mode & 0o7777).toBe(0o1751);
    }
  });

  test('follows links, also to a file that does not exist yet', async () => {
    writeFileSync(at('target'), 'old');
    symlinkSync('target', at('link'));
    expect(await (await uploadRaw(daemon, at('link'), 'new')).json()).toEqual([entry('link')]);
    expect(readFileSync(at('target'), 'utf8')).toBe('new');
    symlinkSync('made/by-link', at('dangling'));
    expect((await uploadRaw(daemon, at('dangling'), 'created')).status).toBe(200);
    expect(readFileSync(at('made/by-link'), 'utf8')).toBe('created');
    expect(lstatSync(at('link')).isSymbolicLink() && lstatSync(at('dangling')).isSymbolicLink()).toBe(true);
    symlinkSync('cycle', at('cycle'));
    expect((await uploadRaw(daemon, at('cycle'), 'x')).status).toBe(412);
  });

  test('with gzip is decoded', async () => {
    const content = randomBytes(500_000);
    const coded = await uploadRaw(daemon, at('raw'), gzipSync(content), { 'content-encoding': 'gzip' });
    expect(coded.status).toBe(200);
    expect(content.equals(readFileSync(at('raw')))).toBe(true);
    const broken = gzipSync(content).subarray(0, 1000);
    for (const body of [broken, 'no gzip at all']) {
      const response = await uploadRaw(daemon, at('broken'), body, { 'content-encoding': 'gzip' });
      expect((await failure(response)).message).toContain('not valid gzip');
    }
    expect(readdirSync(directory)).toEqual(['raw']);
    const unknown = await uploadRaw(daemon, at('unknown'), 'x', { 'content-encoding': 'br' });
    expect(await failure(unknown)).toEqual({
      code: 400,
      message: "content coding 'br' is not supported: use gzip",
    });
  });

  test('by many clients to one path: the file is that of one of them, whole', async () => {
    const contents = Array.from({ length: 8 }, (_, index) => Buffer.alloc(400_000 + index, `${index}`));
    for (const round of ['new', 'old']) {
      const answers = await Promise.all(contents.map((body) => uploadRaw(daemon, at('contested'), body)));
      expect(
        answers.map(({ status }) => status),
        round,
      ).toEqual(contents.map(() => 200));
      const winner = readFileSync(at('contested'));
      expect(contents.some((content) => content.equals(winner))).toBe(true);
    }
  });
});

describe('a multipart upload', () => {
  test('stores many files by their names, with their directories', async () => {
    const names = ['one.txt', 'deep/two.txt', 'caf\u00e9.txt', 'sp ace', 'quo"te'];
    const parts = names.map((name) => filePart(at(name).replaceAll('"', '%22'), `content of ${name}`));
    const response = await uploadParts(daemon, parts);
    expect(await response.json()).toEqual(names.map(entry));
    for (const name of names) expect(readFileSync(at(name), 'utf8')).toBe(`content of ${name}`);
  });

  test('stores more files than are held open at once', async () => {
    const names = Array.from({ length: 1500 }, (_, index) => `file-${index}`);
    const response = await uploadParts(
      daemon,
      names.map((name) => filePart(at(name), name)),
    );
    expect(await response.json()).toHaveLength(1500);
    expect(readFileSync(at('file-1499'), 'utf8')).toBe('file-1499');
    expect(readdirSync(directory)).toHaveLength(1500);
  });

  test('stores one part at the path of the query, also without a file name', async () => {
    const form = new FormData();
    form.set('file', new Blob(['by form']), 'ignored.txt');
    expect((await post(daemon, { path: at('a') }, {}, form)).status).toBe(200);
    expect(readFileSync(at('a'), 'utf8')).toBe('by form');
    await uploadParts(daemon, [{ disposition: 'name="file"', content: 'nameless' }], { path: at('a') });
    expect(readFileSync(at('a'), 'utf8')).toBe('nameless');
  });

  test('ignores parts that are no files', async () => {
    const response = await uploadParts(daemon, [
      { disposition: 'name="comment"', content: 'x'.repeat(3_000_000) },
      { disposition: `name="other"; filename="${at('other')}"`, content: 'y'.repeat(1_000_000) },
      filePart(at('kept'), 'kept'),
      { disposition: 'name="comment"', content: '' },
    ]);
    expect(await response.json()).toEqual([entry('kept')]);
    expect(readdirSync(directory)).toEqual(['kept']);
  });

  test('is refused when a file has no name and the query no path', async () => {
    for (const disposition of ['name="file"', 'name="file"; filename=""']) {
      const response = await uploadParts(daemon, [
        filePart(at('x'), 'x'),
        { disposition, content: 'nameless' },
      ]);
      expect(await failure(response)).toEqual({
        code: 400,
        message: "a part named 'file' has no file name: add one, or the query parameter path",
      });
      expect(readdirSync(directory)).toEqual([]);
    }
  });

  test('with two parts for one path keeps only the first', async () => {
    const twice = await uploadParts(daemon, [
      filePart(at('x'), 'first'),
      filePart(`${directory}/./x`, 'second'),
    ]);
    expect(await failure(twice)).toMatchObject({
      code: 400,
      message: expect.stringContaining('more than once'),
    });
    expect(readFileSync(at('x'), 'utf8')).toBe('first');
    const query = await uploadParts(daemon, [filePart('a', 'first'), filePart('b', 'second')], {
      path: at('y'),
    });
    expect(query.status).toBe(400);
    expect(readFileSync(at('y'), 'utf8')).toBe('first');
    expect(readdirSync(directory)).toEqual(['x', 'y']);
  });

  test('with gzip is decoded', async () => {
    const data = new FormData();
    data.set('file', new Blob([Buffer.alloc(1_000_000, 'z')]), at('zipped'));
    const form = new Response(data);
    const headers = { 'content-type': form.headers.get('content-type') ?? '', 'content-encoding': 'gzip' };
    const body = gzipSync(await form.bytes());
    expect(await (await post(daemon, {}, headers, body)).json()).toEqual([entry('zipped')]);
    expect(statSync(at('zipped')).size).toBe(1_000_000);
    const cut = await post(daemon, {}, headers, body.subarray(0, body.length / 2));
    expect((await failure(cut)).code).toBe(400);
  });

  test('is refused when it is malformed', async () => {
    const good = filePart(at('good'), 'good');
    for (const body of ['', 'nonsense', `--${MULTIPART['content-type'].split('=')[1]}\r\n`]) {
      const { status } = await post(daemon, {}, MULTIPART, body);
      expect([200, 400]).toContain(status);
    }
    const noBoundary = await post(daemon, {}, { 'content-type': 'multipart/form-data' }, 'x');
    expect((await failure(noBoundary)).message).toContain('not valid multipart');
    const long = { 'content-type': `multipart/form-data; boundary=${'b'.repeat(300)}` };
    expect((await post(daemon, {}, long, 'x')).status).toBe(400);
    expect((await uploadParts(daemon, [good])).status).toBe(200);
  });
});

describe('a refused upload', () => {
  test('to a directory is 400', async () => {
    const message = `path is a directory: ${directory}`;
    expect(await failure(await uploadRaw(daemon, directory, 'x'))).toEqual({ code: 400, message });
    symlinkSync('.', at('link'));
    expect((await uploadRaw(daemon, at('link'), 'x')).status).toBe(400);
  });

  test('below a file', async () => {
    writeFileSync(at('file'), '');
    expect((await failure(await uploadRaw(daemon, at('file/below'), 'x'))).code).toBe(400);
    expect((await failure(await uploadRaw(daemon, at('file/far/below'), 'x'))).code).toBe(400);
  });

  test('without a path, or of another type, is 400', async () => {
    expect((await failure(await post(daemon, {}, RAW, 'x'))).message).toContain('path is required');
    for (const type of ['text/plain', 'application/json', 'nonsense', '']) {
      const response = await post(daemon, { path: at('x') }, { 'content-type': type }, Buffer.from('x'));
      expect(await failure(response)).toMatchObject({
        code: 400,
        message: expect.stringContaining('content type'),
      });
    }
  });

  test('as an unknown user is 401', async () => {
    const response = await post(daemon, { path: at('x'), username: 'ghost' }, RAW, randomBytes(2_000_000));
    expect(await failure(response)).toEqual({
      code: 401,
      message: "error looking up user 'ghost': invalid username: 'ghost'",
    });
  });

  test('is read to its end, so that the client gets the response', async () => {
    const body = Buffer.alloc(20_000_000, 'no gzip');
    const headers = { ...RAW, 'content-encoding': 'gzip', 'content-length': body.length };
    const head = uploadHead(`path=${at('x')}`, headers);
    const socket = await openRequest(daemon, head, body);
    const answer = await new Promise((resolve) => socket.once('data', resolve));
    expect(String(answer)).toMatch(/^HTTP\/1.1 400 /);
    socket.destroy();
  });

  test('with a name that is too long is 400', async () => {
    expect((await failure(await uploadRaw(daemon, at('n'.repeat(300)), 'x'))).code).toBe(400);
  });
});

describe('metadata', () => {
  const attributes = (name: string) =>
    Object.fromEntries(
      listAttributesSync(at(name)).map((key) => [key, getAttributeSync(at(name), key).toString()]),
    );

  test('is set on every file, replaces the previous one, and is returned by Stat', async () => {
    const headers = { ...MULTIPART, 'X-Metadata-Foo': 'bar', 'x-metadata-N': '7' };
    const body = multipartBody([filePart(at('a'), '1'), filePart(at('b'), '2')]);
    const metadata = { foo: 'bar', n: '7' };
    const response = await post(daemon, {}, headers, body);
    expect(await response.json()).toEqual([
      { ...entry('a'), metadata },
      { ...entry('b'), metadata },
    ]);
    expect(attributes('a')).toEqual({ 'user.svc.foo': 'bar', 'user.svc.n': '7' });
    expect(attributes('b')).toEqual({ 'user.svc.foo': 'bar', 'user.svc.n': '7' });
    await uploadRaw(daemon, at('b'), '3', { 'x-metadata-foo': 'again' });
    expect(attributes('b')).toEqual({ 'user.svc.foo': 'again' });
    const { entry: shown } = await connectTo(daemon.url).filesystem.stat({ path: at('b') });
    expect(shown?.metadata).toEqual({ foo: 'again' });
    await uploadRaw(daemon, at('b'), '4');
    expect(attributes('b')).toEqual({});
  });

  test('is the first value of a repeated header', () => {
    needs('curl');
    const args = ['-sf', '-H', 'x-metadata-k: first', '-H', 'X-Metadata-K: second', '--data-binary', 'x'];
    const type = ['-H', 'content-type: application/octet-stream'];
    execFileSync('curl', [...args, ...type, filesUrl(daemon, { path: at('f') })]);
    expect(attributes('f')).toEqual({ 'user.svc.k': 'first' });
  });

  test('with an empty key is ignored', async () => {
    const response = await uploadRaw(daemon, at('f'), 'x', { 'X-Metadata-': 'nothing', 'x-metadata-a': '1' });
    expect(await response.json()).toEqual([{ ...entry('f'), metadata: { a: '1' } }]);
    expect(attributes('f')).toEqual({ 'user.svc.a': '1' });
  });

  test('is refused when it is too large or not printable ASCII', async () => {
    for (const headers of [
      { 'x-metadata-big': 'v'.repeat(4096) },
      { [`x-metadata-${'k'.repeat(247)}`]: 'v' },
      { 'x-metadata-umlaut': '\u00fc' },
      { 'x-metadata-tab': 'a\tb' },
    ]) {
      const response = await uploadRaw(daemon, at('f'), randomBytes(1_000_000), headers);
      expect(await failure(response)).toMatchObject({
        code: 400,
        message: expect.stringContaining('metadata'),
      });
    }
    expect(existsSync(at('f'))).toBe(false);
  });
});

describe('watch events', () => {
  /** The events that a watcher of the directory gets from `work`, up to those of a final marker file. */
  async function eventsOf(work: () => Promise<unknown>): Promise<string[]> {
    const seen: string[] = [];
    for await (const { event } of connectTo(daemon.url).filesystem.watchDir({ path: directory })) {
      if (event?.case === 'start') {
        await work();
        mkdirSync(at('marker'));
      }
      if (event?.case !== 'filesystem') continue;
      if (event.value.name === 'marker') return seen;
      seen.push(`${EventType[event.value.type]} ${event.value.name}`);
    }
    return seen;
  }

  test('of a new file are CREATE, CHMOD, WRITE, and the file is complete at the first', async () => {
    for (const [name, content] of [
      ['small', 'x'],
      ['empty', ''],
      ['big', 'x'.repeat(3_000_000)],
    ] as const) {
      const metadata = { 'x-metadata-a': '1' };
      const upload = async () =>
        expect((await uploadRaw(daemon, at(name), content, metadata)).status).toBe(200);
      expect(await eventsOf(upload)).toEqual([`CREATE ${name}`, `CHMOD ${name}`, `WRITE ${name}`]);
      execFileSync('rmdir', [at('marker')]);
    }
  });

  test('of an overwritten file are WRITE', async () => {
    writeFileSync(at('f'), 'old');
    for (const content of ['new', 'longer', 's']) {
      const events = await eventsOf(() => uploadRaw(daemon, at('f'), content));
      expect(new Set(events)).toEqual(new Set(['WRITE f']));
      execFileSync('rmdir', [at('marker')]);
    }
  });

  test('of a refused upload: none', async () => {
    const body = gzipSync(randomBytes(1_000_000)).subarray(0, 500_000);
    const upload = () =>
      uploadRaw(daemon, at('new'), body, { 'content-encoding': 'gzip', 'x-metadata-a': '1' });
    expect(await eventsOf(upload)).toEqual([]);
  });
});

describe('written directly, where no file can be staged', () => {
  test('a file of /proc is written', async () => {
    const path = `/proc/${daemon.pid}/comm`;
    const response = await uploadRaw(daemon, path, 'renamed', { 'x-metadata-a': '1' });
    expect(await response.json()).toEqual([{ path, name: 'comm', type: 'file' }]);
    expect(readFileSync(path, 'utf8')).toBe('renamed\n');
    expect((await uploadRaw(daemon, '/proc/no-such-file', 'x')).status).toBe(404);
  });

  test('a pipe is written', async () => {
    execFileSync('mkfifo', [at('pipe')]);
    expect((await uploadRaw(daemon, at('pipe'), 'x')).status).toBe(412);
    const content = randomBytes(1_000_000);
    const reader = spawn('cat', [at('pipe')]);
    const chunks: Buffer[] = [];
    reader.stdout.on('data', (chunk) => chunks.push(chunk));
    const closed = new Promise((resolve) => reader.once('close', resolve));
    // The pipe has a reader once cat has opened it.
    let status = 412;
    while (status === 412) status = (await uploadRaw(daemon, at('pipe'), content)).status;
    expect(status).toBe(200);
    await closed;
    expect(content.equals(Buffer.concat(chunks))).toBe(true);
  });

  test('a device is written and keeps its owner', async () => {
    const before = statSync('/dev/null');
    expect((await post(daemon, { path: '/dev/null', username: 'daemon' }, RAW, 'x')).status).toBe(200);
    expect(statSync('/dev/null')).toMatchObject({ uid: before.uid, mode: before.mode });
  });
});

describe('with an access token set', () => {
  const token = 'secret-of-the-test';

  async function guardedDaemon(): Promise<TestDaemon> {
    const guarded = await startDaemon();
    const headers = { 'content-type': 'application/json' };
    const body = JSON.stringify({ accessToken: token });
    expect((await fetch(`${guarded.url}/init`, { method: 'POST', headers, body })).status).toBe(204);
    return guarded;
  }

  test('an upload needs the token, or a signature for this operation', async () => {
    await using guarded = await guardedDaemon();
    const path = at('signed');
    const query = (operation: 'read' | 'write', expiration?: string) => {
      const signature = signFile({ path, username: 'daemon', operation, token, expiration });
      return { path, username: 'daemon', signature, ...(expiration && { signature_expiration: expiration }) };
    };
    const read = (parameters: Record<string, string>, headers = {}) =>
      fetch(filesUrl(guarded, parameters), { headers });

    const unsigned = await failure(await post(guarded, { path }, RAW, 'x'));
    expect(unsigned).toEqual({ code: 401, message: 'missing signature query parameter' });
    expect((await failure(await post(guarded, query('read'), RAW, 'x'))).message).toBe('invalid signature');
    expect((await post(guarded, query('write'), RAW, 'by signature')).status).toBe(200);
    expect(await (await read(query('read'))).text()).toBe('by signature');
    expect((await read(query('read', '99999999999'))).status).toBe(200);
    const expired = await failure(await read(query('read', '1000')));
    expect(expired).toEqual({ code: 401, message: 'signature is already expired' });

    const wrong = await failure(await read(query('read'), { 'x-access-token': 'wrong' }));
    expect(wrong).toEqual({ code: 401, message: 'access token present in header but does not match' });
    expect((await get(guarded, path, { 'x-access-token': token })).status).toBe(200);
    expect((await get(guarded, path, {}, 'HEAD')).status).toBe(401);
  });

  test('compose needs the token itself', async () => {
    await using guarded = await guardedDaemon();
    const compose = await fetch(`${guarded.url}/files/compose`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    });
    expect((await failure(compose)).message).toMatch(/^unauthorized access/);
  });
});
