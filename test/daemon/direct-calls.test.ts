import { once } from 'node:events';
import { symlinkSync, writeFileSync } from 'node:fs';
import { type IncomingHttpHeaders, request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { scratch } from '../support/scratch.ts';

// Fastify's routes serve the same calls: with a query, a request is left to them.
const TOKEN = 'secret';

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  await fetch(`${daemon.url}/init`, { method: 'POST', body: JSON.stringify({ accessToken: TOKEN }) });
});
afterAll(() => daemon[Symbol.asyncDispose]());

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

type Headers = Readonly<Record<string, string>>;

async function ask(method: string, path: string, headers: Headers, body = ''): Promise<Answer> {
  const outgoing = request(daemon.url + path, { method, agent: false, headers });
  outgoing.end(body);
  const [response] = await once(outgoing, 'response');
  // The only header that may differ between two answers.
  const { date: _, ...answered } = response.headers;
  return { status: response.statusCode, headers: answered, body: await text(response) };
}

const json = { 'content-type': 'application/json' };
const trusted = { ...json, 'x-access-token': TOKEN };
const STAT = '/filesystem.Filesystem/Stat';

const START = '/process.Process/Start';
const framed = { ...trusted, 'content-type': 'application/connect+json' };
/** A message of less than 128 bytes in its envelope. */
const envelope = (message: string) => `\0\0\0\0${String.fromCharCode(message.length)}${message}`;
const CLEAR = envelope('{"process":{"cmd":"/none"}}');

const INIT = JSON.stringify({ accessToken: TOKEN });

const cases: [string, string, string, Headers, string][] = [
  ['health', 'GET', '/health', {}, ''],
  ['health with a body', 'GET', '/health', { 'content-length': '3' }, 'abc'],
  ['/init', 'POST', '/init', json, INIT],
  ['/init in another type for a page', 'POST', '/init', { 'content-type': 'x', origin: 'http://a' }, INIT],
  ['/init with ids', 'POST', '/init', { 'x-request-id': 'a1' }, INIT],
  ['/init with another token', 'POST', '/init', json, '{"accessToken":"other"}'],
  ['/init without a body', 'POST', '/init', {}, ''],
  ['/init with a malformed body', 'POST', '/init', json, '{'],
  ['/init with a body that is too large', 'POST', '/init', json, 'x'.repeat(100_000)],
  ['/init in another transfer coding', 'POST', '/init', { 'transfer-encoding': 'gzip, chunked' }, INIT],
  ['/init by another method', 'GET', '/init', {}, ''],
  ['Stat', 'POST', STAT, trusted, '{"path":"/etc"}'],
  ['Stat for a page of another origin', 'POST', STAT, { ...trusted, origin: 'http://a' }, '{"path":"/etc"}'],
  ['an error', 'POST', STAT, trusted, '{"path":"/none"}'],
  ['an invalid timeout', 'POST', STAT, { ...trusted, 'connect-timeout-ms': 'x' }, '{}'],
  ['no token', 'POST', STAT, json, '{"path":"/etc"}'],
  ['another token', 'POST', STAT, { ...json, 'x-access-token': 'other' }, '{"path":"/etc"}'],
  ['another version', 'POST', STAT, { ...trusted, 'connect-protocol-version': '2' }, '{}'],
  ['an unsupported type', 'POST', STAT, { ...trusted, 'content-type': 'text/plain' }, '{}'],
  ['no type', 'POST', STAT, { 'x-access-token': TOKEN }, '{}'],
  ['another method', 'GET', STAT, trusted, ''],
  ['a stream', 'POST', START, framed, CLEAR],
  ['a stream for a page of another origin', 'POST', START, { ...framed, origin: 'http://a' }, CLEAR],
  ['a stream without a message', 'POST', START, framed, ''],
  ['a stream without a token', 'POST', START, { ...framed, 'x-access-token': '' }, CLEAR],
  ['a stream in another version', 'POST', START, { ...framed, 'connect-protocol-version': '2' }, CLEAR],
  [
    'a listing that is compressed',
    'POST',
    '/filesystem.Filesystem/ListDir',
    { ...trusted, 'accept-encoding': 'gzip' },
    '{"path":"/etc"}',
  ],
];

test.each(cases)('%s: answered as by the route', async (_name, method, path, headers, body) => {
  const direct = await ask(method, path, headers, body);
  expect(direct).toEqual(await ask(method, `${path}?`, headers, body));
});

/** The number of downloads and of their bytes. */
async function downloads(): Promise<number[]> {
  const { body } = await ask('GET', '/metrics', { accept: 'text/plain', 'x-access-token': TOKEN });
  return [...body.matchAll(/^envd_download\w*_total (\d+)/gm)].map(([, value]) => Number(value));
}

test('a file is counted and logged once', async () => {
  const path = join(scratch(), 'file');
  writeFileSync(path, 'content');
  const lines = () => daemon.log.filter(({ operation }) => operation === 'GET /files');
  const [before = 0, bytes = 0] = await downloads();
  await ask('GET', `/files?path=${path}`, { 'x-access-token': TOKEN });
  await expect.poll(async () => (await downloads())[0]).toBe(before + 1);
  expect((await downloads())[1]).toBeGreaterThan(bytes + 100);
  await expect.poll(() => lines()).toMatchObject([{ status: 200 }]);
});

test('a file is sent as by the route', async () => {
  const directory = scratch();
  const files = ['plain', 'page.html', 'a b+c&d=é', 'empty'];
  for (const name of files)
    writeFileSync(join(directory, name), name === 'empty' ? '' : `content of ${name}`);
  writeFileSync(join(directory, 'large'), Buffer.alloc(200_000, 'x'));
  symlinkSync('plain', join(directory, 'link'));
  const token = { 'x-access-token': TOKEN };
  const headers: Headers[] = [token, {}, { 'x-access-token': 'other' }, { ...token, origin: 'http://a' }];
  const demands: Headers[] = [
    { range: 'bytes=1-2' },
    { 'accept-encoding': 'gzip' },
    { 'if-none-match': '*' },
  ];
  for (const name of [...files, 'large', 'link', 'none', 'none/x', 'x'.repeat(5000), '', '.']) {
    const path = `/files?path=${encodeURIComponent(join(directory, name))}`;
    for (const sent of [...headers, ...demands.map((each) => ({ ...token, ...each }))]) {
      const direct = await ask('GET', path, sent);
      expect(direct, `${name} ${Object.keys(sent)}`).toEqual(await ask('GET', `${path}&x`, sent));
    }
  }
  for (const user of ['root', 'nobody', 'none', '%zz', '']) {
    const path = `/files?path=${encodeURIComponent(join(directory, 'plain'))}&username=${user}`;
    expect(await ask('GET', path, token), user).toEqual(await ask('GET', `${path}&x`, token));
  }
});

test('a call is logged once', async () => {
  await ask('POST', '/process.Process/SendSignal', trusted, '{"process":{"pid":1},"signal":9}');
  await ask('POST', '/process.Process/List', trusted, '{}');
  await ask('POST', '/process.Process/Connect', framed, envelope('{"process":{"pid":1}}'));
  const lines = () =>
    daemon.log.filter((line) => /Process\/(SendSignal|List|Connect)$/.test(String(line.operation)));
  await expect.poll(() => lines().length).toBeGreaterThanOrEqual(3);
  expect(lines()).toMatchObject([
    { operation: 'POST /process.Process/SendSignal', status: 404, code: 'not_found' },
    { operation: 'POST /process.Process/List', status: 200 },
    { operation: 'POST /process.Process/Connect', status: 200, code: 'not_found' },
  ]);
});
