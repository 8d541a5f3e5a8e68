import { once } from 'node:events';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { brotliCompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { create, toBinary } from '@bufbuild/protobuf';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { frameOf } from '../../../src/daemon/http/protocol/codec.ts';
import { ListDirRequestSchema } from '../../../src/gen/filesystem/filesystem_pb.js';
import { type PlainServer, startPlain } from '../../support/clients/plain-connect.ts';
import { startDaemon, type TestDaemon } from '../../support/programs/daemon.ts';

/** Several slices, the last one short. */
const FILES = 1100;

let daemon: TestDaemon;
/** The same service as served by connect-node alone. */
let plain: PlainServer;
beforeAll(async () => {
  daemon = await startDaemon();
  const many = join(daemon.scratch, 'many');
  mkdirSync(join(many, 'ünlike "others"\n'), { recursive: true });
  symlinkSync('0', join(many, 'link'));
  for (let n = 0; n < FILES; n++) writeFileSync(join(many, `${n}`), '');
  mkdirSync(join(daemon.scratch, 'few/below'), { recursive: true });
  mkdirSync(join(daemon.scratch, 'none'));
  plain = await startPlain();
});
afterAll(async () => {
  plain.close();
  await daemon[Symbol.asyncDispose]();
});

type Headers = Readonly<Record<string, string>>;

/** Headers and body as they are on the wire. */
async function list(url: string, body: Uint8Array | string, headers: Headers) {
  const call = request(`${url}/filesystem.Filesystem/ListDir`, { method: 'POST', agent: false, headers });
  call.end(body);
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  return { status: response.statusCode, headers: response.headers, body: await buffer(response) };
}

const json = { 'content-type': 'application/json' };
type ListedCodec = [string, Headers, (path: string) => Uint8Array | string];
const codecs: [ListedCodec, ListedCodec] = [
  ['JSON', json, (path) => JSON.stringify({ path, depth: 2 })],
  [
    'binary',
    { 'content-type': 'application/proto' },
    (path) => toBinary(ListDirRequestSchema, create(ListDirRequestSchema, { path, depth: 2 })),
  ],
];

test.each(
  codecs.flatMap(([name, headers, encode]) =>
    ['many', 'few', 'none', 'missing'].map((directory) => ({ name, headers, encode, directory })),
  ),
)(
  '$name, $directory entries: the response equals that of connect-node',
  async ({ headers, encode, directory }) => {
    const body = encode(join(daemon.scratch, directory));
    const [ours, theirs] = [await list(daemon.url, body, headers), await list(plain.url, body, headers)];
    expect(ours.status).toBe(theirs.status);
    expect(ours.body.equals(theirs.body)).toBe(true);
    for (const name of ['content-type', 'content-length', 'content-encoding'])
      expect(ours.headers[name], name).toBe(theirs.headers[name]);
  },
);

test.each([
  ['gzip, deflate', 'gzip', gunzipSync],
  ['deflate, br, gzip', 'gzip', gunzipSync],
  ['br', undefined, (bytes: Buffer) => bytes],
  ['deflate', undefined, (bytes: Buffer) => bytes],
])('Accept-Encoding %s: the response is compressed accordingly', async (accepted, encoding, decode) => {
  const body = JSON.stringify({ path: join(daemon.scratch, 'many') });
  const headers = { ...json, 'accept-encoding': accepted };
  const [ours, theirs] = [await list(daemon.url, body, headers), await list(plain.url, body, headers)];
  expect(ours.headers['content-encoding']).toBe(encoding);
  expect(theirs.headers['content-encoding']).toBe(encoding);
  expect(decode(ours.body).equals(decode(theirs.body))).toBe(true);
});

test.each(['application/json', 'application/proto'])(
  'a request in Brotli is refused, as %s',
  async (type) => {
    const answer = await list(daemon.url, brotliCompressSync('{}'), {
      'content-type': type,
      'content-encoding': 'br',
    });
    expect(answer.status).toBe(501);
    expect(JSON.parse(String(answer.body))).toMatchObject({
      code: 'unimplemented',
      message: expect.stringMatching(/br.*gzip/),
    });
  },
);

test('a compressed request gets a compressed response, unless that is small', async () => {
  const headers = { ...json, 'content-encoding': 'gzip' };
  const ask = (directory: string) => gzipSync(JSON.stringify({ path: join(daemon.scratch, directory) }));
  const many = await list(daemon.url, ask('many'), headers);
  expect(many.headers['content-encoding']).toBe('gzip');
  expect(JSON.parse(gunzipSync(many.body).toString()).entries).toHaveLength(FILES + 2);
  const few = await list(daemon.url, ask('few'), { ...headers, 'accept-encoding': 'gzip' });
  expect(few.headers['content-encoding']).toBeUndefined();
});

const framed = (message: Uint8Array | string) => frameOf(0, Buffer.from(message));
const [[, , inJson], [, , inBinary]] = codecs;

test.each<[string, Headers, (path: string) => Uint8Array]>([
  ['application/grpc-web+proto', {}, (path) => framed(inBinary(path))],
  ['application/grpc-web+json', {}, (path) => framed(inJson(path))],
  ['application/grpc-web', { 'grpc-accept-encoding': 'gzip' }, (path) => framed(inBinary(path))],
  ['application/json', { 'content-encoding': 'gzip' }, (path) => gzipSync(inJson(path))],
  [
    ...(['application/proto', { 'content-encoding': 'gzip', 'accept-encoding': 'br' }] as const),
    (path) => gzipSync(inBinary(path)),
  ],
])('%s, %o: the response equals that of connect-node alone', async (type, more, encode) => {
  const headers = { 'content-type': type, ...more };
  for (const directory of ['many', 'few', 'none', 'missing']) {
    const body = encode(join(daemon.scratch, directory));
    const [ours, theirs] = [await list(daemon.url, body, headers), await list(plain.url, body, headers)];
    expect(ours.body.equals(theirs.body)).toBe(true);
    for (const name of ['content-type', 'content-length', 'content-encoding', 'grpc-encoding'])
      expect(ours.headers[name], name).toBe(theirs.headers[name]);
  }
});

test('a client that disconnects during the response leaves the daemon answering', async () => {
  const call = request(`${daemon.url}/filesystem.Filesystem/ListDir`, {
    method: 'POST',
    agent: false,
    headers: json,
  });
  call.on('error', () => {});
  call.end(JSON.stringify({ path: join(daemon.scratch, 'many') }));
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  response.destroy();
  expect((await list(daemon.url, JSON.stringify({ path: join(daemon.scratch, 'few') }), json)).status).toBe(
    200,
  );
});
