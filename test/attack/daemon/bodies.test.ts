import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { longestBeside } from '../../support/clients/beside.ts';
import { memoryOf } from '../../support/machine/proc.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/*
 * Request bodies of callers with and without the token, of any size, shape and speed: the daemon goes on answering
 * others, and its memory does not grow.
 */

const TOKEN = 't0ken';
const MIB = 1024 * 1024;
/** CPU time, in milliseconds, far below what the same bodies took without limits (up to 38 s). */
const CEILING_MS = 2000;

let daemon: TestDaemon;
beforeAll(async () => {
  daemon = await startDaemon();
  expect((await post('/init', JSON.stringify({ accessToken: TOKEN }))).status).toBe(204);
});
afterAll(() => daemon[Symbol.asyncDispose]());

function post(path: string, body: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(daemon.url + path, { method: 'POST', body, headers });
}

const fill = (bytes: number, piece: (index: number) => string): string => {
  let text = '';
  for (let index = 0; text.length < bytes; index++) text += piece(index);
  return text;
};

/** JSON of about that many bytes that is slow to parse. */
const SHAPES: Record<string, (bytes: number) => string> = {
  'empty objects': (bytes) => `[${'{},'.repeat(bytes / 3)}0]`,
  'objects of a shape each': (bytes) => `[${fill(bytes, (index) => `{"a${index.toString(36)}":1},`)}0]`,
  'wide objects': (bytes) => `[${fill(bytes, wideObject)}0]`,
  variables: (bytes) => `{"envVars":{${fill(bytes, (index) => `"_${index.toString(36)}":"",`)}"z":""}}`,
  'arrays in arrays': (bytes) => '['.repeat(bytes / 2) + ']'.repeat(bytes / 2),
  'objects in objects': (bytes) => `${'{"a":'.repeat(bytes / 6)}1${'}'.repeat(bytes / 6)}`,
  'one string': (bytes) => `{"accessToken":"${'a'.repeat(bytes)}"}`,
  'a bundle': (bytes) => `{"caBundle":"${'-----BEGIN CERTIFICATE-----\\n'.repeat(bytes / 29)}"}`,
};

function wideObject(index: number): string {
  const members = Array.from({ length: 60 }, (_, member) => `"${(index * 60 + member).toString(36)}":0`);
  return `{${members.join(',')}},`;
}

/** The status of `path` for `body`, and the longest that other calls waited for the event loop meanwhile. */
async function answeredBeside(
  path: string,
  body: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; longestMs: number }> {
  let status = 0;
  const call = post(path, body, headers).then((response) => {
    status = response.status;
    return response.text();
  });
  const longestMs = await longestBeside(daemon, call);
  return { status, longestMs };
}

describe.each(Object.entries(SHAPES))('%s as the body of POST /init', (_name, shape) => {
  test('with 16 MiB is 413, and delays no other call', async () => {
    const { status, longestMs } = await answeredBeside('/init', shape(16 * MIB - 200).slice(0, 16 * MIB));
    expect(status).toBe(413);
    expect(longestMs).toBeLessThan(CEILING_MS);
  });

  test('of 60 kB without a token is refused, and delays no other call', async () => {
    const { status, longestMs } = await answeredBeside('/init', shape(60_000));
    expect([400, 401, 413]).toContain(status);
    expect(longestMs).toBeLessThan(CEILING_MS);
  });
});

describe('a body of 16 MiB to another operation delays no other call', () => {
  const body = SHAPES['empty objects']?.(16 * MIB - 200) ?? '';

  test.each([
    ['/files/compose', 413],
    ['/nothing', 404],
    ['/unfreeze', 204],
    ['/health', 405],
  ])('%s with the token is %i', async (path, wanted) => {
    const headers = { 'x-access-token': TOKEN, 'content-type': 'application/json' };
    const { status, longestMs } = await answeredBeside(path, body, headers);
    expect(status).toBe(wanted);
    expect(longestMs).toBeLessThan(CEILING_MS);
  });

  test.each([
    '/files/compose',
    '/nothing',
    '/freeze',
    '/process.Process/Start',
    '/filesystem.Filesystem/Stat',
  ])('%s without the token is 401', async (path) => {
    const { status, longestMs } = await answeredBeside(path, body, { 'content-type': 'application/json' });
    expect(status).toBe(401);
    expect(longestMs).toBeLessThan(CEILING_MS);
  });
});

/** Opens a connection, sends `head` and `body`, and collects the response. */
async function send(
  head: string,
  body: string,
): Promise<{ socket: Socket; answer(): string; closed: Promise<unknown> }> {
  const socket = connect(daemon.port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', () => {});
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk) => {
    text += chunk;
  });
  await once(socket, 'connect');
  socket.write(head + body);
  return { socket, answer: () => text, closed };
}

const initHead = (length: number) => `POST /init HTTP/1.1\r\nhost: a\r\ncontent-length: ${length}\r\n\r\n`;

test('bodies in chunks of a byte, of callers without a token and all in one turn, take no memory', async () => {
  await using attacked = await startDaemon();
  const body = '1\r\n \r\n'.repeat(60_000);
  const head = 'POST /init HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n';
  const before = memoryOf(attacked.pid).peak;
  // They have all come when it goes on.
  process.kill(attacked.pid, 'SIGSTOP');
  const sent = Array.from({ length: 48 }, () => {
    const socket = connect(attacked.port, '127.0.0.1').on('error', () => {});
    onTestFinished(() => void socket.destroy());
    return new Promise<void>((resolve) => socket.write(head + body, () => resolve()));
  });
  await Promise.all(sent);
  process.kill(attacked.pid, 'SIGCONT');
  expect((await fetch(`${attacked.url}/health`)).status).toBe(204);
  // What is garbage already counts, too: it does not grow with the number of connections. Kept, they would take several times
  // as much.
  expect(memoryOf(attacked.pid).peak - before).toBeLessThan(160 * MIB);
});

describe('incomplete bodies', () => {
  test('60 large ones are refused, and memory does not grow', async () => {
    const before = memoryOf(daemon.pid).peak;
    const body = `{"accessToken":"${'a'.repeat(16 * MIB - 100)}`;
    const calls = await Promise.all(Array.from({ length: 60 }, () => send(initHead(16 * MIB), body)));
    await Promise.all(calls.map(({ closed }) => closed));
    expect(memoryOf(daemon.pid).peak - before).toBeLessThan(200 * MIB);
    for (const { answer } of calls) expect(answer()).toMatch(/^HTTP\/1.1 (413|503) /);
  });

  test('any number of them leave /init available to the caller with the token', async () => {
    const body = `{"caBundle":"${'a'.repeat(50_000)}`;
    const calls: Awaited<ReturnType<typeof send>>[] = [];
    for (let round = 0; round < 100; round++) {
      calls.push(await send(initHead(200_000), body), await send(initHead(100), '{'));
      const response = await post('/init', JSON.stringify({ accessToken: TOKEN }));
      expect(response.status).toBe(204);
    }
    await Promise.all(calls.map(({ closed }) => closed));
    const statuses = calls.map(({ answer }) => answer().slice(9, 12));
    expect(new Set(statuses)).toEqual(new Set(['503', '408']));
    // Not always the first one, because on a busy machine its time has passed before all places are taken.
    const displaced = calls.find(({ answer }) => answer().includes(' 503 '));
    expect(displaced?.answer()).toMatch(/"code":503,"message":"[^"]*sent/);
    // The last ones were not displaced: they ran into the time limit.
    expect(calls.at(-1)?.answer()).toMatch(/"code":408,"message":"request body took longer than 5 s/);
  });

  test('sent a byte at a time do not use more memory than their size', async () => {
    const before = memoryOf(daemon.pid).peak;
    const head = 'POST /init HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n';
    const chunks = '1\r\na\r\n'.repeat(100_000);
    const body = `d\r\n{"caBundle":"\r\n${chunks}`;
    const calls = await Promise.all(Array.from({ length: 12 }, () => send(head, body)));
    await Promise.all(calls.map(({ closed }) => closed));
    expect(memoryOf(daemon.pid).peak - before).toBeLessThan(200 * MIB);
    for (const { answer } of calls) expect(answer()).toMatch(/^HTTP\/1.1 (408|413|503) /);
  });
});

test('caBundle may be larger than other members', async () => {
  const comment = '# Subject: CN={[\\"Root\\"]}, O=a, C=b\\n'.repeat(10_000).slice(0, 400_000);
  const response = await post('/init', `{"accessToken":"${TOKEN}","caBundle":"${comment}n"}`);
  expect(await response.json()).toEqual({
    code: 400,
    message: "init step 'CA bundle' failed: caBundle must contain a certificate in PEM",
  });
  const asToken = await post('/init', `{"accessToken":"${comment}n","caBundle":""}`);
  expect(asToken.status).toBe(413);
  expect(await asToken.json()).toMatchObject({ message: expect.stringContaining('65536') });
  const inside = await post('/init', `{"x":{"caBundle":"${comment}n"}}`);
  expect(inside.status).toBe(413);
});
