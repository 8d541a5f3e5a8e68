import { strict as assert } from 'node:assert';
import { createHash, randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { request as secureRequest } from 'node:https';
import { gzipSync } from 'node:zlib';
import { Code } from '@connectrpc/connect';
import { given, section } from '../../suite/cases.ts';
import { jsonOf, RAW, refused, refusedRest, type TestedDaemon, until } from '../../suite/daemon.ts';
import { sh } from '../../suite/running.ts';

const BOUNDARY = '----conformance';
const MIB = 1024 * 1024;
const FORM = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` };

type Part = readonly [disposition: string, content: string];
type Query = Readonly<Record<string, string>>;

const file = (filename: string, content: string): Part => [`name="file"; filename="${filename}"`, content];

function bodyOf(parts: readonly Part[]): Buffer {
  const text = parts.map(
    ([disposition, content]) =>
      `--${BOUNDARY}\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${content}\r\n`,
  );
  return Buffer.from(`${text.join('')}--${BOUNDARY}--\r\n`);
}

const post = (
  daemon: TestedDaemon,
  query: Query,
  headers: Record<string, string>,
  body: string | Uint8Array,
) => daemon.rest('POST', '/files', { query, headers, body });
const form = (daemon: TestedDaemon, parts: readonly Part[], query: Query = {}) =>
  post(daemon, query, FORM, bodyOf(parts));
const raw = (daemon: TestedDaemon, query: Query, body = 'x', headers: Record<string, string> = {}) =>
  post(daemon, query, { ...RAW, ...headers }, body);

interface Stored {
  readonly path: string;
  readonly name: string;
  readonly type: string;
}

/**
 * An upload whose body stops in the middle: once `sent` has come true, the connection breaks. What was at the path, and
 * beside it, must be what it was, before and after.
 */
async function brokenOff(
  daemon: TestedDaemon,
  headers: Record<string, string>,
  head: string | Uint8Array,
): Promise<void> {
  const path = daemon.at('file');
  await daemon.upload(path, 'before');
  const untouched = async () => {
    assert.deepEqual(await daemon.names(), ['file']);
    assert.equal(String(await daemon.download(path)), 'before');
  };
  const { url, token } = daemon.run;
  const start = url.protocol === 'https:' ? secureRequest : request;
  const target = new URL(url);
  target.pathname = `${url.pathname.replace(/\/$/, '')}/files`;
  target.search = String(new URLSearchParams({ path }));
  const call = start(target, {
    method: 'POST',
    headers: { ...headers, ...(token !== null && { 'x-access-token': token }) },
  });
  const over = new Promise<void>((resolve) => call.once('error', () => resolve()));
  for (let piece = 0; piece < 4; piece += 1) {
    await new Promise<void>((resolve) => call.write(piece === 0 ? head : randomBytes(MIB), () => resolve()));
    await untouched();
  }
  call.destroy(new Error('broken off'));
  await over;
  await untouched();
  // The next upload of the same file is not disturbed by it.
  await daemon.upload(path, 'after');
  assert.equal(String(await daemon.download(path)), 'after');
  assert.deepEqual(await daemon.names(), ['file']);
}

export const UPLOADS = section('5.2', 'Uploads', {
  'raw: stored at the path, and told in an array': async (daemon) => {
    const path = daemon.at('file.txt');
    const stored = jsonOf<Stored[]>(await raw(daemon, { path }, 'content'), 200);
    assert.deepEqual(stored, [{ path, name: 'file.txt', type: 'file' }]);
    assert.equal(String(await daemon.download(path)), 'content');
  },
  'raw: without a path it is 400': async (daemon) => refusedRest(await raw(daemon, {}), 400),
  'raw: all bytes of a large body': async (daemon) => {
    const content = randomBytes(6 * MIB + 3);
    await daemon.upload(daemon.at('large'), content);
    const sum = await daemon.shell(`sha256sum <'${daemon.at('large')}'`);
    assert.equal(sum.split(' ')[0], createHash('sha256').update(content).digest('hex'));
  },
  'raw: an empty body is an empty file': async (daemon) => {
    await daemon.upload(daemon.at('empty'));
    assert.equal((await daemon.stat(daemon.at('empty'))).size, 0n);
  },
  'a form: with a path, that is where the file goes': async (daemon) => {
    const path = daemon.at('d', 'here');
    const stored = jsonOf<Stored[]>(await form(daemon, [file('there.txt', 'content')], { path }), 200);
    assert.deepEqual(stored, [{ path, name: 'here', type: 'file' }]);
    assert.equal(String(await daemon.download(path)), 'content');
  },
  'a form: without a path each goes to its whole file name': async (daemon) => {
    const parts = ['a', 'd/b', 'd/e/c'].map((name) => file(daemon.at(name), name));
    const stored = jsonOf<Stored[]>(await form(daemon, parts), 200);
    assert.deepEqual(
      stored.map(({ path }) => path),
      ['a', 'd/b', 'd/e/c'].map((name) => daemon.at(name)),
    );
    for (const name of ['a', 'd/b', 'd/e/c'])
      assert.equal(String(await daemon.download(daemon.at(name))), name);
  },
  'a form: parts of other names are skipped': async (daemon) => {
    const other: Part = [`name="other"; filename="${daemon.at('other')}"`, 'x'];
    const note: Part = ['name="note"', 'x'];
    const stored = jsonOf<Stored[]>(await form(daemon, [other, file(daemon.at('file'), 'x'), note]), 200);
    assert.deepEqual([stored.length, await daemon.names()], [1, ['file']]);
    refusedRest(await form(daemon, [other, note]), 400, /other.*note/);
    refusedRest(await form(daemon, []), 400);
  },
  'a form: a part without a file name needs a path': async (daemon) => {
    const part: Part = ['name="file"', 'content'];
    const path = daemon.at('file');
    jsonOf(await form(daemon, [part], { path }), 200);
    assert.equal(String(await daemon.download(path)), 'content');
    refusedRest(await form(daemon, [part]), 400);
  },
  'a form: names are raw UTF-8, and %22 a quote': async (daemon) => {
    const stored = jsonOf<Stored[]>(
      await form(daemon, [file(`${daemon.directory}/grün %22x%22.txt`, 'x')]),
      200,
    );
    assert.equal(stored[0]?.name, 'grün "x".txt');
    assert.deepEqual(await daemon.names(), ['grün "x".txt']);
  },
  'a form: two parts to one path are 400, and the first is kept': async (daemon) => {
    const path = daemon.at('file');
    refusedRest(await form(daemon, [file(path, 'first'), file(path, 'second')]), 400);
    assert.equal(String(await daemon.download(path)), 'first');
  },
  'a form: an empty file': async (daemon) => {
    jsonOf(await form(daemon, [file(daemon.at('empty'), '')]), 200);
    assert.equal((await daemon.stat(daemon.at('empty'))).size, 0n);
  },
  'a form that ends before its end is 400, and what was there stays': async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'before');
    const torn = bodyOf([file('x', 'y'.repeat(1000))]).subarray(0, 600);
    refusedRest(await post(daemon, { path }, FORM, torn), 400);
    assert.equal(String(await daemon.download(path)), 'before');
    assert.deepEqual(await daemon.names(), ['file']);
  },
  'any other content type is 400': async (daemon) => {
    const path = daemon.at('file');
    for (const type of ['text/plain', 'application/json'])
      refusedRest(await post(daemon, { path }, { 'content-type': type }, '{}'), 400);
    await refused(daemon.stat(path), Code.NotFound);
  },
  'gzip is decoded, raw and in a form': async (daemon) => {
    const coding = { 'content-encoding': 'gzip' };
    const path = daemon.at('raw');
    jsonOf(await post(daemon, { path }, { ...RAW, ...coding }, gzipSync('content')), 200);
    assert.equal(String(await daemon.download(path)), 'content');
    const body = gzipSync(bodyOf([file(daemon.at('form'), 'content')]));
    jsonOf(await post(daemon, {}, { ...FORM, ...coding }, body), 200);
    assert.equal(String(await daemon.download(daemon.at('form'))), 'content');
  },
  'an unknown coding, and gzip that is none, are 400 and store nothing': async (daemon) => {
    const path = daemon.at('file');
    await daemon.makeDir();
    refusedRest(await raw(daemon, { path }, 'x', { 'content-encoding': 'br' }), 400);
    refusedRest(await raw(daemon, { path }, 'no gzip', { 'content-encoding': 'gzip' }), 400);
    const torn = gzipSync(randomBytes(1000)).subarray(0, 500);
    refusedRest(await post(daemon, { path }, { ...RAW, 'content-encoding': 'gzip' }, torn), 400);
    assert.deepEqual(await daemon.names(), []);
  },
  "parents are made; owner, group and mode are the user's and 0644": given('another user')(async (daemon) => {
    const { name } = daemon.other;
    const path = daemon.at('a', 'b', 'file');
    jsonOf(await raw(daemon, { path, username: name }), 200);
    const entry = await daemon.stat(path);
    const group = await daemon.shell(`id -gn ${name}`);
    assert.deepEqual([entry.owner, entry.group, entry.permissions], [name, group, '-rw-r--r--']);
  }),
  'an overwritten file keeps its mode and inode': async (daemon) => {
    const path = daemon.at('file');
    await daemon.upload(path, 'one');
    const before = await daemon.shell(`chmod 640 '${path}' && stat -c '%a %i' '${path}'`);
    await daemon.upload(path, 'another');
    assert.equal(await daemon.shell(`stat -c '%a %i' '${path}'`), before);
    assert.equal(String(await daemon.download(path)), 'another');
  },
  'a link is followed': async (daemon) => {
    await daemon.upload(daemon.at('target'), 'one');
    await daemon.shell(`cd '${daemon.directory}' && ln -s target link`);
    await daemon.upload(daemon.at('link'), 'two');
    assert.equal(String(await daemon.download(daemon.at('target'))), 'two');
    assert.equal((await daemon.stat(daemon.at('link'))).symlinkTarget, daemon.at('target'));
  },
  'a directory at the path is 400': async (daemon) => {
    const path = await daemon.makeDir();
    refusedRest(await raw(daemon, { path }), 400, `path is a directory: ${path}`);
    refusedRest(await form(daemon, [file('x', 'x')], { path }), 400, `path is a directory: ${path}`);
  },
  'raw: broken off, it leaves what was there, and nothing beside it': (daemon) =>
    brokenOff(daemon, { ...RAW, 'content-length': String(64 * MIB) }, randomBytes(MIB)),
  'raw: the same without a length': (daemon) => brokenOff(daemon, RAW, randomBytes(MIB)),
  'a form: the same': (daemon) =>
    brokenOff(
      daemon,
      FORM,
      `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n`,
    ),
  'a fifo takes what is uploaded': async (daemon) => {
    await daemon.makeDir();
    const fifo = daemon.at('fifo');
    await daemon.shell(`mkfifo '${fifo}'`);
    // Opened for both, so that it does not wait for a writer before it says that it is there.
    const reader = await daemon.start({ process: sh(`exec 3<>'${fifo}'; echo up; head -n 1 <&3`) });
    await reader.wrote('up');
    await daemon.upload(fifo, 'through the fifo\n');
    assert.equal(String((await reader.ended).stdout), 'up\nthrough the fifo\n');
  },
  'a file of /proc takes what is uploaded': async (daemon) => {
    const { pid } = await daemon.start({ process: { cmd: 'sleep', args: ['100'], cwd: '/' } });
    await daemon.upload(`/proc/${pid}/oom_score_adj`, '700');
    assert.equal(await daemon.shell(`cat /proc/${pid}/oom_score_adj`), '700');
  },
  'uploads to many paths at once': async (daemon) => {
    const names = Array.from({ length: 40 }, (_, i) => `${100 + i}`);
    await daemon.atOnce(names, (name) => daemon.upload(daemon.at('d', name), name));
    assert.deepEqual(await daemon.names(daemon.at('d')), names);
  },
  'one file overwritten by many at once is one of them, whole': async (daemon) => {
    const path = daemon.at('file');
    const contents = Array.from({ length: 12 }, (_, i) => String.fromCharCode(97 + i).repeat(50_000 + i));
    await daemon.atOnce(contents, (content) => daemon.upload(path, content));
    assert(contents.includes(String(await daemon.download(path))));
    await until(async () => (await daemon.names()).length === 1);
  },
});
