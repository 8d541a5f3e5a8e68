import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { create, toBinary } from '@bufbuild/protobuf';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { StatRequestSchema } from '../../../src/gen/filesystem/filesystem_pb.js';
import { type PlainServer, startPlain } from '../../support/clients/plain-connect.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

let daemon: TestDaemon;
let plain: PlainServer;
let dir: string;
beforeAll(async () => {
  daemon = await startDaemon();
  plain = await startPlain();
  dir = join(daemon.scratch, 'files');
  mkdirSync(dir);
  writeFileSync(join(dir, 'file'), 'content');
});
afterAll(async () => {
  plain.close();
  await daemon[Symbol.asyncDispose]();
});

type Headers = Readonly<Record<string, string>>;

interface Answer {
  readonly status: number | undefined;
  readonly type: string | undefined;
  readonly length: string | undefined;
  readonly encoding: string | undefined;
  readonly body: string;
}

async function call(
  url: string,
  method: string,
  headers: Headers,
  body: string | Uint8Array,
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const outgoing = request(`${url}/filesystem.Filesystem/${method}`, {
    method: 'POST',
    agent: false,
    headers,
  });
  outgoing.on('error', reject).on('response', async (response) => {
    const bytes = await buffer(response);
    const { 'content-type': type, 'content-length': length, 'content-encoding': encoding } = response.headers;
    resolve({ status: response.statusCode, type, length, encoding, body: bytes.toString('base64') });
  });
  outgoing.end(body);
  return promise;
}

const json = { 'content-type': 'application/json' };
const proto = { 'content-type': 'application/proto' };
const statOf = (path: string) => toBinary(StatRequestSchema, create(StatRequestSchema, { path }));

const cases: [string, string, Headers, () => string | Uint8Array][] = [
  ['JSON', 'Stat', json, () => JSON.stringify({ path: `${dir}/file` })],
  ['binary', 'Stat', proto, () => statOf(`${dir}/file`)],
  [
    'a charset',
    'Stat',
    { 'content-type': 'application/json; charset=utf-8' },
    () => JSON.stringify({ path: dir }),
  ],
  ['another case', 'Stat', { 'content-type': 'Application/JSON' }, () => JSON.stringify({ path: dir })],
  ['an empty answer', 'Remove', json, () => JSON.stringify({ path: `${dir}/none` })],
  ['an empty answer in binary', 'Remove', proto, () => statOf(`${dir}/none`)],
  ['an empty message in binary', 'Stat', proto, () => ''],
  [
    'a small answer that might be compressed',
    'Stat',
    { ...json, 'accept-encoding': 'gzip' },
    () => '{"path":"/"}',
  ],
  ['a missing path', 'Stat', json, () => JSON.stringify({ path: `${dir}/none` })],
  ['a missing path in binary', 'Stat', proto, () => statOf(`${dir}/none`)],
  ['a directory that exists', 'MakeDir', json, () => JSON.stringify({ path: dir })],
  ['an unknown property', 'Stat', json, () => '{"nope":1}'],
  ['no JSON', 'Stat', json, () => '{'],
  ['no body', 'Stat', json, () => ''],
  ['another type', 'Stat', json, () => '{"path":7}'],
  ['a compressed request', 'Stat', { ...json, 'content-encoding': 'gzip' }, () => gzipSync('{"path":"/"}')],
  ['an unknown coding', 'Stat', { ...json, 'content-encoding': 'zip' }, () => '{}'],
  ['no timeout', 'Stat', { ...json, 'connect-timeout-ms': '60000' }, () => '{"path":"/"}'],
];

test.each(cases)('%s: the response equals that of connect-node', async (_name, method, headers, body) => {
  const [ours, theirs] = [
    await call(daemon.url, method, headers, body()),
    await call(plain.url, method, headers, body()),
  ];
  expect(ours).toEqual(theirs);
});

test('an invalid timeout is refused', async () => {
  const { status, body } = await call(daemon.url, 'Stat', { ...json, 'connect-timeout-ms': 'x' }, '{}');
  expect(status).toBe(400);
  expect(Buffer.from(body, 'base64').toString()).toContain("invalid Connect-Timeout-Ms 'x'");
});

test('the deadline of a call also holds while its message is being received', async () => {
  const headers = { ...json, 'content-length': '10', 'connect-timeout-ms': '200' };
  const outgoing = request(`${daemon.url}/filesystem.Filesystem/Stat`, {
    method: 'POST',
    agent: false,
    headers,
  });
  outgoing.on('error', () => {});
  outgoing.write('{');
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  expect(response.statusCode).toBe(504);
  expect(JSON.parse(String(await buffer(response)))).toMatchObject({ code: 'deadline_exceeded' });
  outgoing.destroy();
});

test('an undecodable binary message is bad input', async () => {
  const { status, body } = await call(daemon.url, 'Stat', proto, Buffer.from([0x0a, 0x7f]));
  expect(status).toBe(400);
  expect(JSON.parse(Buffer.from(body, 'base64').toString())).toEqual({
    code: 'invalid_argument',
    message: 'cannot decode message filesystem.StatRequest: premature EOF',
  });
});

test('the log has the code of an error', async () => {
  await call(daemon.url, 'Stat', json, JSON.stringify({ path: `${dir}/none` }));
  await expect.poll(() => daemon.log.some((line) => line.code === 'not_found')).toBe(true);
});
