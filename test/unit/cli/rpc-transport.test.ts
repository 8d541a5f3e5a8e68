import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { create, toBinary } from '@bufbuild/protobuf';
import { Code, type ConnectError, createClient } from '@connectrpc/connect';
import { expect, onTestFinished, test, vi } from 'vitest';
import { HttpClient } from '../../../src/cli/connection/http.ts';
import { rpcFrameOf } from '../../../src/cli/connection/rpc-frames.ts';
import { RpcTransport } from '../../../src/cli/connection/rpc-transport.ts';
import {
  Filesystem,
  StatResponseSchema,
  WatchDirResponseSchema,
} from '../../../src/gen/filesystem/filesystem_pb.js';

const MAX_BYTES = 1000;
const STREAM = { 'content-type': 'application/connect+proto' };
const JSON_TYPE = { 'content-type': 'application/json' };

/** A client of a server that answers every call so. `seen` has the heads of the requests. */
async function clientOf(answer: (response: ServerResponse) => void) {
  const seen: Record<string, unknown>[] = [];
  const server = createServer((request, response) => {
    seen.push({ url: request.url, ...request.headers });
    request.resume().once('end', () => answer(response));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const http = new HttpClient(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, 'it', {
    'x-of': 'all',
  });
  onTestFinished(() => {
    http.close();
    server.closeAllConnections();
    server.close();
  });
  return {
    client: createClient(Filesystem, new RpcTransport(http, { 'x-of-rpcs': 'rpcs' }, MAX_BYTES)),
    seen,
  };
}

const nameOf = (name: string) => ({ event: { case: 'filesystem' as const, value: { name } } });
const messageOf = (name: string) =>
  rpcFrameOf(toBinary(WatchDirResponseSchema, create(WatchDirResponseSchema, nameOf(name))));

function endOf(end: object): Buffer {
  const bytes = rpcFrameOf(Buffer.from(JSON.stringify(end)));
  bytes[0] = 2;
  return bytes;
}

/** What a stream brings, and its error. */
async function readAll(answer: (response: ServerResponse) => void) {
  const { client } = await clientOf(answer);
  const names: string[] = [];
  try {
    for await (const { event } of client.watchDir({ path: '/' }))
      if (event.case === 'filesystem') names.push(event.value.name);
    return { names, error: null };
  } catch (error) {
    return { names, error: error as ConnectError };
  }
}

test('a call sends its headers, and returns the message', async () => {
  const answer = toBinary(StatResponseSchema, create(StatResponseSchema, { entry: { name: 'red' } }));
  const { client, seen } = await clientOf((response) =>
    response.writeHead(200, { 'content-type': 'application/proto', 'x-kind': 'own' }).end(answer),
  );
  let kind: string | null = null;
  const onHeader = (headers: Headers) => {
    kind = headers.get('x-kind');
  };
  const { entry } = await client.stat({ path: '/' }, { headers: { 'x-of-call': 'call' }, onHeader });
  expect({ name: entry?.name, kind }).toEqual({ name: 'red', kind: 'own' });
  expect(seen[0]).toMatchObject({
    ...{ url: '/filesystem.Filesystem/Stat', 'content-type': 'application/proto' },
    ...{ 'connect-protocol-version': '1', 'x-of': 'all', 'x-of-rpcs': 'rpcs', 'x-of-call': 'call' },
  });
});

test('neither a call nor a stream loads the fetch API, which takes longer than the start of Node', async () => {
  const answer = toBinary(StatResponseSchema, create(StatResponseSchema, { entry: { name: 'red' } }));
  const { client } = await clientOf((response) =>
    response.writeHead(200, { 'content-type': 'application/proto' }).end(answer),
  );
  vi.stubGlobal('Headers', null);
  onTestFinished(() => void vi.unstubAllGlobals());
  await expect(client.stat({ path: '/' })).resolves.toMatchObject({ entry: { name: 'red' } });
  const bytes = Buffer.concat([messageOf('a'), endOf({})]);
  const read = await readAll((response) => response.writeHead(200, STREAM).end(bytes));
  expect(read).toEqual({ names: ['a'], error: null });
});

test.each([
  ['an error of the daemon', 404, JSON_TYPE, '{"code":"not_found","message":"gone"}', Code.NotFound, 'gone'],
  ['a code that is not known', 404, JSON_TYPE, '{"code":"toString","message":"gone"}', Code.Unknown, 'gone'],
  ['a number as a code', 404, JSON_TYPE, '{"code":"5","message":"gone"}', Code.Unknown, 'gone'],
  ['an error of a gateway', 502, JSON_TYPE, '{"code":502,"message":"gone"}', Code.Unavailable, 'gone'],
  ['a page of a proxy', 502, {}, '<html>', Code.Unavailable, 'HTTP 502'],
  [
    'an answer of another kind',
    200,
    JSON_TYPE,
    '{}',
    Code.Unknown,
    'unsupported content type application/json',
  ],
])('%s is an error of a call', async (_, status, headers, body, code, rawMessage) => {
  const { client } = await clientOf((response) => response.writeHead(status, headers).end(body));
  await expect(client.stat({ path: '/' })).rejects.toMatchObject({ name: 'ConnectError', code, rawMessage });
});

test('a call that is not answered in time is an error; so is one that its caller leaves', async () => {
  const { client } = await clientOf(() => {});
  const late = client.stat({ path: '/' }, { timeoutMs: 50 });
  await expect(late).rejects.toMatchObject({ code: Code.DeadlineExceeded });
  const left = new AbortController();
  const call = client.stat({ path: '/' }, { signal: left.signal, timeoutMs: 60_000 });
  left.abort();
  await expect(call).rejects.toMatchObject({ cause: { name: 'AbortError' } });
});

test('a stream is the same however its bytes arrive', async () => {
  const bytes = Buffer.concat([messageOf('a'), messageOf(''), messageOf('b'.repeat(300)), endOf({})]);
  const names = ['a', '', 'b'.repeat(300)];
  for (const size of [1, 4, 5, 6, 100, bytes.length]) {
    const read = await readAll((response) => {
      const send = (at: number) => {
        if (at >= bytes.length) response.end();
        else response.write(bytes.subarray(at, at + size), () => send(at + size));
      };
      response.writeHead(200, STREAM);
      send(0);
    });
    expect(read).toEqual({ names, error: null });
  }
});

const LONG = rpcFrameOf(Buffer.alloc(MAX_BYTES + 1));
const COMPRESSED = Buffer.from([1, 0, 0, 0, 0]);

test.each([
  ['ends with an error', endOf({ error: { code: 'aborted', message: 'moved' } }), Code.Aborted, 'moved'],
  ['has no end', Buffer.alloc(0), Code.Unavailable, 'missing EndStreamResponse'],
  ['has a message that is too long', LONG, Code.ResourceExhausted, expect.stringContaining('1001 bytes')],
  ['is compressed', COMPRESSED, Code.Internal, expect.stringContaining('compressed')],
])('a stream that %s is an error behind its messages', async (_, end, code, rawMessage) => {
  const bytes = Buffer.concat([messageOf('a'), end]);
  const { names, error } = await readAll((response) => response.writeHead(200, STREAM).end(bytes));
  expect(names).toEqual(['a']);
  expect(error).toMatchObject({ name: 'ConnectError', code, rawMessage });
});

test('a stream that breaks off is a lost connection', async () => {
  const { names, error } = await readAll((response) =>
    response.writeHead(200, STREAM).write(messageOf('a'), () => setImmediate(() => response.destroy())),
  );
  expect(names).toEqual(['a']);
  expect(error).toMatchObject({ code: 'ECONNRESET' });
});
