import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  filePart,
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
import { scratch } from '../../support/machine/scratch.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';
import { archiveOf } from '../../support/services/tar-archive.ts';
import { until } from '../../support/until.ts';

let daemon: TestDaemon;
let directory: string;
const at = (name: string) => join(directory, name);
const content = (name: string) => readFileSync(at(name), 'utf8');

beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(async () => {
  await daemon[Symbol.asyncDispose]();
});
beforeEach(() => {
  directory = scratch();
});

const send = (
  name: string,
  query: Readonly<Record<string, string>>,
  body: string | Buffer<ArrayBuffer>,
  headers: Readonly<Record<string, string>> = {},
) => post(daemon, { path: at(name), ...query }, { ...RAW, ...headers }, body);

async function messageOf(response: Response): Promise<string> {
  return ((await response.json()) as { message: string }).message;
}

const tagOf = async (name: string, headers = {}) =>
  String((await get(daemon, at(name), headers)).headers.get('etag'));

describe('a form without a file', () => {
  const named = (name: string) => ({ disposition: `name="${name}"; filename="a.txt"`, content: 'a' });

  test.each(['upload', 'files', 'file[]'])('whose part is called %s is refused', async (name) => {
    const response = await uploadParts(daemon, [named(name), named('note')], { path: at('a.txt') });
    expect(response.status).toBe(400);
    expect(await messageOf(response)).toBe(
      `form has no part named 'file', which is the content: it has '${name}', 'note'`,
    );
    expect(readdirSync(directory)).toEqual([]);
  });

  test('and without any part is refused', async () => {
    const response = await uploadParts(daemon, []);
    expect(response.status).toBe(400);
    expect(await messageOf(response)).toBe(
      "form has no part named 'file', which is the content: it is empty",
    );
  });

  test('names some of its fields, each up to some length', async () => {
    const parts = Array.from({ length: 500 }, (_, index) => named(`${index}-${'n'.repeat(1000)}`));
    const message = await messageOf(await uploadParts(daemon, parts, { path: at('a.txt') }));
    expect(message.length).toBeLessThan(2000);
    expect(message).toMatch(/and 490 more$/);
  });
});

describe('append=true', () => {
  test('adds at the end, and keeps inode, owner, mode and metadata', async () => {
    await uploadRaw(daemon, at('log'), 'one\n', { 'x-metadata-a': 'b' });
    chmodSync(at('log'), 0o4640);
    const before = statSync(at('log'));
    const response = await send('log', { append: 'true', username: 'daemon' }, 'two\n');
    expect(response.status).toBe(200);
    expect(content('log')).toBe('one\ntwo\n');
    const after = statSync(at('log'));
    expect(after).toMatchObject({ ino: before.ino, uid: before.uid, mode: before.mode & ~0o4000 });
    expect(await (await send('log', { append: 'true' }, '', { 'x-metadata-c': 'd' })).json()).toMatchObject([
      { metadata: { c: 'd' } },
    ]);
  });

  test('makes a file that is missing', async () => {
    expect((await send('a/new', { append: 'true' }, 'one')).status).toBe(200);
    expect(content('a/new')).toBe('one');
  });

  test('of many at a time keeps each in one piece', async () => {
    const pieces = Array.from({ length: 20 }, (_, index) => String.fromCharCode(97 + index).repeat(200_000));
    writeFileSync(at('log'), '');
    const answers = await Promise.all(pieces.map((piece) => send('log', { append: 'true' }, piece)));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    const runs = content('log').match(/(.)\1*/g) ?? [];
    expect(runs.map((run) => run.length)).toEqual(pieces.map((piece) => piece.length));
  });

  test('overwrites nothing that another process appends meanwhile', async () => {
    writeFileSync(at('log'), '');
    let lines = 0;
    let isOver = false;
    const writing = (async () => {
      for (; !isOver; lines++) {
        appendFileSync(at('log'), '<line>');
        await new Promise(setImmediate);
      }
    })();
    for (let index = 0; index < 50; index++) await send('log', { append: 'true' }, 'x'.repeat(5000));
    isOver = true;
    await writing;
    expect(content('log').length).toBe(lines * 6 + 50 * 5000);
    expect(content('log').match(/<line>/g)?.length).toBe(lines);
  });

  test('that breaks off adds nothing', async () => {
    writeFileSync(at('log'), 'one');
    const head = uploadHead(`path=${at('log')}&append=true`, { ...RAW, 'content-length': 10_000_000 });
    const socket = await openRequest(daemon, head, Buffer.alloc(5_000_000));
    socket.destroy();
    await send('log', { append: 'true' }, 'two');
    expect(content('log')).toBe('onetwo');
  });

  test('does not fill the holes of a sparse file', async () => {
    writeFileSync(at('sparse'), '');
    truncateSync(at('sparse'), 1024 ** 3);
    expect((await send('sparse', { append: 'true' }, 'end')).status).toBe(200);
    expect(statSync(at('sparse')).size).toBe(1024 ** 3 + 3);
    expect(statSync(at('sparse')).blocks).toBeLessThan(2048);
  });

  test('takes the parts of a form, and compressed content', async () => {
    writeFileSync(at('a'), 'a');
    const form = multipartBody([filePart(at('a'), '1'), filePart(at('b'), '2')]);
    expect((await post(daemon, { append: 'true' }, MULTIPART, form)).status).toBe(200);
    const coded = gzipSync('3') as Buffer<ArrayBuffer>;
    expect((await send('a', { append: 'true' }, coded, { 'content-encoding': 'gzip' })).status).toBe(200);
    expect([content('a'), content('b')]).toEqual(['a13', '2']);
  });
});

describe('offset=N', () => {
  test('writes from there on, in place', async () => {
    writeFileSync(at('file'), '0123456789');
    const { ino } = statSync(at('file'));
    expect((await send('file', { offset: '3' }, 'abc')).status).toBe(200);
    expect(content('file')).toBe('012abc6789');
    expect((await send('file', { offset: '0' }, 'X')).status).toBe(200);
    expect((await send('file', { offset: '12' }, 'Y')).status).toBe(200);
    expect(content('file')).toBe('X12abc6789\0\0Y');
    expect(statSync(at('file')).ino).toBe(ino);
  });

  test('makes a file that is missing, with a hole', async () => {
    expect((await send('a/file', { offset: '3' }, 'abc')).status).toBe(200);
    expect(content('a/file')).toBe('\0\0\0abc');
  });

  test('takes content of any size', async () => {
    writeFileSync(at('file'), 'head');
    const large = Buffer.alloc(3_000_000, 'l') as Buffer<ArrayBuffer>;
    expect((await send('file', { offset: '4' }, large)).status).toBe(200);
    expect(content('file')).toBe(`head${large}`);
  });
});

describe('mode', () => {
  test('is the mode of the file, new or not, small or large', async () => {
    const large = Buffer.alloc(300_000) as Buffer<ArrayBuffer>;
    for (const [name, body] of [['small', 'x'] as const, ['large', large] as const]) {
      expect((await send(name, { mode: '0755' }, body)).status).toBe(200);
      expect(statSync(at(name)).mode & 0o7777).toBe(0o755);
      expect((await send(name, { mode: '600' }, body)).status).toBe(200);
      expect(statSync(at(name)).mode & 0o7777).toBe(0o600);
    }
  });
});

describe('a condition', () => {
  test('If-None-Match: * makes a file, and keeps one that is there', async () => {
    expect((await send('file', {}, 'new', { 'if-none-match': '*' })).status).toBe(200);
    const response = await send('file', {}, 'other', { 'if-none-match': '*' });
    expect(response.status).toBe(412);
    expect(await messageOf(response)).toBe("file exists: If-None-Match is '*'");
    expect(content('file')).toBe('new');
  });

  test('If-Match replaces the file that was read', async () => {
    writeFileSync(at('file'), 'old');
    const tag = await tagOf('file');
    expect((await send('file', {}, 'newer', { 'if-match': tag })).status).toBe(200);
    const response = await send('file', {}, 'lost', { 'if-match': tag });
    expect(response.status).toBe(412);
    expect(await messageOf(response)).toBe('file has changed: If-Match does not match it');
    expect(content('file')).toBe('newer');
    expect((await send('file', { append: 'true' }, '+', { 'if-match': '*' })).status).toBe(200);
    expect(content('file')).toBe('newer+');
  });

  test('If-Match takes the tag of a compressed download, which most clients get', async () => {
    writeFileSync(at('file'), 'old'.repeat(1000));
    const tag = await tagOf('file', { 'accept-encoding': 'gzip' });
    expect(tag).toMatch(/^W\/".*-gzip"$/);
    expect((await send('file', {}, 'new', { 'if-match': tag })).status).toBe(200);
    expect((await send('file', {}, 'lost', { 'if-match': tag })).status).toBe(412);
  });

  test('If-Match is not met by a missing file', async () => {
    expect((await send('missing', {}, 'x', { 'if-match': '*' })).status).toBe(412);
    expect((await send('missing', {}, 'x', { 'if-match': '"a"' })).status).toBe(412);
    expect(existsSync(at('missing'))).toBe(false);
  });

  test('holds when the content is written, not only when the upload begins', async () => {
    writeFileSync(at('file'), 'old');
    const tag = await tagOf('file');
    const headers = { ...RAW, 'content-length': 2_000_000, 'if-match': tag, connection: 'close' };
    const socket = await openRequest(
      daemon,
      uploadHead(`path=${at('file')}`, headers),
      Buffer.alloc(1_500_000),
    );
    let answer = '';
    socket.on('data', (piece) => {
      answer += piece;
    });
    await sleep(200);
    writeFileSync(at('file'), 'of another process');
    socket.write(Buffer.alloc(500_000));
    await until(
      'the answer',
      () => answer,
      (text) => text.includes('\r\n\r\n'),
    );
    expect(answer).toMatch(/^HTTP\/1.1 412 /);
    expect(content('file')).toBe('of another process');
    socket.destroy();
  });

  test('of many writers lets one win', async () => {
    writeFileSync(at('file'), 'old');
    const tag = await tagOf('file');
    const answers = await Promise.all(
      Array.from({ length: 16 }, (_, index) => send('file', {}, `writer ${index}`, { 'if-match': tag })),
    );
    expect(answers.filter(({ status }) => status === 200).length).toBe(1);
    const makers = await Promise.all(
      Array.from({ length: 16 }, (_, index) => send('new', {}, `maker ${index}`, { 'if-none-match': '*' })),
    );
    expect(makers.filter(({ status }) => status === 200).length).toBe(1);
  });
});

test.each([
  [{ append: 'yes' }, {}, "append must be true or false, not 'yes'"],
  [{ offset: '-1' }, {}, "offset must be a whole number, not '-1'"],
  [{ offset: '1e3' }, {}, "offset must be a whole number, not '1e3'"],
  [{ append: 'true', offset: '1' }, {}, 'append and offset cannot be used together'],
  [{ mode: '999' }, {}, "mode must be an octal number from 0000 to 0777, not '999'"],
  [{ mode: '4755' }, {}, "mode must be an octal number from 0000 to 0777, not '4755'"],
  [
    {},
    { 'content-range': 'bytes 0-1/2' },
    'Content-Range cannot be used in an upload: use the query parameter offset',
  ],
])('%o, %o is refused', async (query, headers, message) => {
  const response = await send('file', query as Record<string, string>, 'ab', headers);
  expect(response.status).toBe(400);
  expect(await messageOf(response)).toBe(message);
  expect(existsSync(at('file'))).toBe(false);
});

test.each([{ append: 'true' }, { offset: '0' }, { mode: '755' }])(
  '%o is refused for an archive',
  async (query) => {
    const answer = await post(
      daemon,
      { path: directory, ...query },
      { 'content-type': 'application/x-tar' },
      'x',
    );
    expect(answer.status).toBe(400);
    expect(await messageOf(answer)).toContain('cannot be used with application/x-tar');
  },
);

describe('a program that is running', () => {
  test.each([
    ['small', Buffer.from('#!/bin/sh\n')],
    ['large', Buffer.alloc(2_000_000, '#')],
  ])('is replaced by a %s one, and goes on', async (_, body) => {
    copyFileSync('/bin/sleep', at('program'));
    chmodSync(at('program'), 0o4755);
    using running = running_(spawn(at('program'), ['60']));
    await once(running.child, 'spawn');
    const { ino } = statSync(at('program'));
    const response = await send('program', {}, body as Buffer<ArrayBuffer>, { 'x-metadata-a': 'b' });
    expect(await response.json()).toMatchObject([{ path: at('program'), metadata: { a: 'b' } }]);
    expect(readFileSync(at('program')).equals(body)).toBe(true);
    expect(statSync(at('program')).ino).not.toBe(ino);
    expect(statSync(at('program')).mode & 0o7777).toBe(0o755);
    expect(running.child.exitCode).toBe(null);
    expect(readdirSync(directory)).toEqual(['program']);
  });

  test('is not changed in place', async () => {
    copyFileSync('/bin/sleep', at('program'));
    using running = running_(spawn(at('program'), ['60']));
    await once(running.child, 'spawn');
    for (const query of [{ append: 'true' }, { offset: '1' }] as Record<string, string>[]) {
      const answer = await send('program', query, 'x');
      expect(await messageOf(answer)).toBe(`file is being executed: '${at('program')}'`);
    }
    expect(readFileSync(at('program')).equals(readFileSync('/bin/sleep'))).toBe(true);
  });
});

const running_ = (child: ReturnType<typeof spawn>) => ({
  child,
  [Symbol.dispose]: () => void child.kill('SIGKILL'),
});

test('what follows a compressed archive is ignored, not told as an error after all was stored', async () => {
  const archive = gzipSync(archiveOf({ name: 'file', content: 'content' }));
  mkdirSync(at('tree'));
  const pieces = async function* () {
    yield archive;
    await until('the file is stored', () => existsSync(at('tree/file')), Boolean);
    yield Buffer.from('garbage');
  };
  const headers = { 'content-type': 'application/gzip' };
  const response = await post(daemon, { path: at('tree') }, headers, ReadableStream.from(pieces()) as never);
  expect([response.status, content('tree/file')]).toEqual([200, 'content']);
});
