import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/* Streams with one JSON message a line, for those who accept application/x-ndjson. */

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
});
afterAll(() => daemon[Symbol.asyncDispose]());

type Refusal = { readonly code: string };

const ASKING = { accept: 'application/x-ndjson', 'content-type': 'application/json' };

function call(method: string, request: unknown, headers: Record<string, string> = {}, signal?: AbortSignal) {
  const body = JSON.stringify(request);
  const init = { method: 'POST', body, headers: { ...ASKING, ...headers }, signal: signal ?? null };
  return fetch(`${daemon.url}/${method}`, init);
}
const start = (script: string, others = {}, headers = {}) =>
  call('process.Process/Start', { process: { cmd: 'sh', args: ['-c', script] }, ...others }, headers);

/** The messages of a response, as they come. */
async function* messagesOf(response: Response) {
  if (!response.body) throw new Error('no body');
  for await (const line of createInterface(Readable.fromWeb(response.body))) yield JSON.parse(line);
}
async function all(response: Response) {
  const messages = [];
  for await (const message of messagesOf(response)) messages.push(message);
  return messages;
}

test('Start: the messages of Connect in JSON', async () => {
  const response = await start('echo out; echo err >&2; exit 3');
  expect([response.status, response.headers.get('content-type')]).toEqual([200, 'application/x-ndjson']);
  const text = await response.text();
  expect(text.endsWith('\n')).toBe(true);
  const messages = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line).event);
  expect(messages[0]).toEqual({ start: { pid: expect.any(Number) } });
  expect(messages).toContainEqual({ data: { stdout: btoa('out\n') } });
  expect(messages).toContainEqual({ data: { stderr: btoa('err\n') } });
  expect(messages.at(-1).end).toMatchObject({ exitCode: 3, exited: true, status: 'exit status 3' });
});

test('Start: much output, byte for byte', async () => {
  const messages = await all(await start('seq 300000'));
  const output = messages.flatMap(({ event }) =>
    event.data ? [Buffer.from(event.data.stdout, 'base64')] : [],
  );
  expect(Buffer.concat(output).toString()).toBe(
    `${Array.from({ length: 300_000 }, (_, n) => n + 1).join('\n')}\n`,
  );
});

test('Connect: several clients, each with everything', async () => {
  const first = messagesOf(await start('read line; seq 50000', { tag: 'shared' }));
  await first.next();
  const readers = await Promise.all(
    [1, 2, 3].map(() => call('process.Process/Connect', { process: { tag: 'shared' } })),
  );
  const input = { process: { tag: 'shared' }, input: { stdin: btoa('go\n') } };
  const [outputs] = await Promise.all([
    Promise.all(readers.map(all)),
    fetch(`${daemon.url}/process.Process/SendInput`, {
      ...{ method: 'POST', body: JSON.stringify(input), headers: { 'content-type': 'application/json' } },
    }),
  ]);
  const own = [];
  for await (const message of first) own.push(message);
  for (const output of outputs) expect(output.slice(1)).toEqual(own);
});

test('WatchDir: start, then what changes', async () => {
  const path = join(daemon.scratch, 'watched');
  mkdirSync(path);
  const messages = messagesOf(await call('filesystem.Filesystem/WatchDir', { path }));
  expect((await messages.next()).value).toEqual({ start: {} });
  writeFileSync(join(path, 'ä'), '');
  expect((await messages.next()).value).toEqual({ filesystem: { name: 'ä', type: 'EVENT_TYPE_CREATE' } });
  await messages.return();
});

test('keepalives come at the interval of the request', async () => {
  const messages = messagesOf(await start('sleep 1000', {}, { 'keepalive-ping-interval': '1' }));
  await messages.next();
  expect((await messages.next()).value).toEqual({ event: { keepalive: {} } });
  await messages.return();
});

test.each([
  ['process.Process/Start', { process: { cmd: 'no-such-program' } }, 404, 'not_found'],
  ['process.Process/Start', {}, 400, 'invalid_argument'],
  ['process.Process/Connect', { process: { pid: 999_999_999 } }, 404, 'not_found'],
  ['filesystem.Filesystem/WatchDir', { path: '/none' }, 404, 'not_found'],
  ['filesystem.Filesystem/WatchDir', { path: '/', more: 1 }, 400, 'invalid_argument'],
])('%s with %j fails with a status and an ordinary error', async (method, request, status, code) => {
  const response = await call(method, request);
  expect([response.status, response.headers.get('content-type')]).toEqual([status, 'application/json']);
  expect(await response.json()).toEqual({ code, message: expect.any(String) });
});

test('a later error is the last line', async () => {
  const messages = await all(await start('sleep 1000', {}, { 'connect-timeout-ms': '2000' }));
  const error = { code: 'deadline_exceeded', message: 'process was killed after 2000 ms' };
  expect(messages.slice(1)).toEqual([{ error }]);
});

test('a process outlives the client that started it', async () => {
  const left = new AbortController();
  const request = { process: { cmd: 'sleep', args: ['1000'] }, tag: 'kept' };
  await messagesOf(await call('process.Process/Start', request, {}, left.signal)).next();
  left.abort();
  const messages = messagesOf(await call('process.Process/Connect', { process: { tag: 'kept' } }));
  expect((await messages.next()).value.event.start.pid).toBeGreaterThan(0);
  await messages.return();
});

test('unary calls, and streams of others, are as before', async () => {
  expect(await (await call('filesystem.Filesystem/Stat', { path: '/etc' })).json()).toHaveProperty(
    'entry.name',
    'etc',
  );
  const plain = await call('process.Process/List', {}, { accept: '*/*' });
  expect(await plain.json()).toEqual({ processes: expect.any(Array) });
  for (const accept of ['*/*', 'application/json', 'application/x-ndjsonp'])
    expect((await call('process.Process/Start', {}, { accept })).status).toBe(415);
  expect((await call('process.Process/Start', {}, { 'content-type': 'text/plain' })).status).toBe(415);
});

test('a coded body is refused, and an unknown version of the protocol', async () => {
  const coded = await call('process.Process/Start', {}, { 'content-encoding': 'gzip' });
  expect([coded.status, ((await coded.json()) as Refusal).code]).toEqual([501, 'unimplemented']);
  const version = await call('process.Process/Start', {}, { 'connect-protocol-version': '2' });
  expect([version.status, ((await version.json()) as Refusal).code]).toEqual([400, 'invalid_argument']);
});
