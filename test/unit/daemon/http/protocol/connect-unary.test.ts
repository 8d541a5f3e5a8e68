import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { create, fromBinary, fromJsonString, toBinary, toJsonString } from '@bufbuild/protobuf';
import { createConnectRouter } from '@connectrpc/connect';
import { expect, onTestFinished, test } from 'vitest';
import { ENVELOPE_BYTES, frameOf } from '../../../../../src/daemon/http/protocol/codec.ts';
import { COMPRESSIONS, serveByConnectNode } from '../../../../../src/daemon/http/protocol/connect-node.ts';
import { unaryCodecOf } from '../../../../../src/daemon/http/protocol/connect-unary.ts';
import { processRpcs } from '../../../../../src/daemon/http/rpc/process.ts';
import type { ProcessTable } from '../../../../../src/daemon/services/process/table.ts';
import { type ListResponse, ListResponseSchema } from '../../../../../src/gen/process/process_pb.js';
import { callOf } from '../../../../support/clients/calls.ts';

/** Processes with the characters that JSON is made of. */
const processesOf = (count: number, bytes: number) =>
  Array.from({ length: count }, (_, index) => ({
    ...{ pid: index + 1, tag: null },
    config: { command: '[{"]},', args: ['x'.repeat(bytes)], environment: {}, cwd: null },
  }));

/** Serves List of processes, as the daemon does; `turns`: those of the event loop between the call and its answer. */
async function serveList(processes: ReturnType<typeof processesOf>) {
  let [turns, atCall, atAnswer, isOver] = [0, 0, 0, false];
  const count = () => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const list = () => {
    atCall = turns;
    return processes;
  };
  const [rpc] = processRpcs({ list } as unknown as ProcessTable);
  const router = createConnectRouter({ acceptCompression: COMPRESSIONS });
  rpc?.register(router);
  const [handler] = router.handlers;
  if (!handler) throw new Error('no handler');
  const server = createServer((request, response) => {
    const writeHead = response.writeHead.bind(response);
    response.writeHead = ((...head: Parameters<typeof writeHead>) => {
      atAnswer = turns;
      return writeHead(...head);
    }) as typeof writeHead;
    const codec = unaryCodecOf(request.headers['content-type'] ?? '');
    const call = callOf(request, response);
    void (codec ? rpc?.serve?.(call, codec) : serveByConnectNode(call, handler));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    isOver = true;
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const ask = async (type: string, body: Buffer, headers: Record<string, string> = {}) => {
    const call = request({ port, path: '/process.Process/List', method: 'POST', agent: false });
    for (const [name, value] of Object.entries({ 'content-type': type, ...headers }))
      call.setHeader(name, value);
    call.end(body);
    const [response] = (await once(call, 'response')) as [IncomingMessage];
    return buffer(response);
  };
  return { ask, turns: () => atAnswer - atCall };
}

const responseOf = (processes: ReturnType<typeof processesOf>) =>
  create(ListResponseSchema, {
    processes: processes.map(({ pid, config: { command: cmd, args } }) => ({ pid, config: { cmd, args } })),
  });

test.each([0, 2, 88, 300])('%d elements in slices are one message', async (count) => {
  const processes = processesOf(count, 3000);
  const { ask } = await serveList(processes);
  const whole = responseOf(processes);
  expect(String(await ask('application/json', Buffer.from('{}')))).toBe(
    toJsonString(ListResponseSchema, whole),
  );
  expect(await ask('application/proto', Buffer.alloc(0))).toEqual(
    Buffer.from(toBinary(ListResponseSchema, whole)),
  );
});

const message = (body: Buffer) => body.subarray(ENVELOPE_BYTES, ENVELOPE_BYTES + body.readUInt32BE(1));

test.each<[string, Buffer, Record<string, string>, (body: Buffer) => ListResponse]>([
  [
    ...(['application/json', Buffer.from('{}'), {}] as const),
    (body) => fromJsonString(ListResponseSchema, String(body)),
  ],
  ['application/proto', Buffer.alloc(0), {}, (body) => fromBinary(ListResponseSchema, body)],
  [
    ...(['application/grpc-web+proto', frameOf(0, Buffer.alloc(0)), {}] as const),
    (body) => fromBinary(ListResponseSchema, message(body)),
  ],
  [
    ...(['application/grpc-web+json', frameOf(0, Buffer.from('{}')), {}] as const),
    (body) => fromJsonString(ListResponseSchema, String(message(body))),
  ],
  [
    ...(['application/json', gzipSync('{}')] as const),
    { 'content-encoding': 'gzip', 'accept-encoding': 'identity' },
    (body) => fromJsonString(ListResponseSchema, String(body)),
  ],
])('the event loop turns while a large answer to %s is encoded', async (type, body, headers, decode) => {
  // 3 MB, with a turn for each 256 KiB.
  for (const [count, bytes] of [
    [1000, 3000],
    [12, 300_000],
  ] as const) {
    const processes = processesOf(count, bytes);
    const { ask, turns } = await serveList(processes);
    expect(decode(await ask(type, body, headers))).toEqual(responseOf(processes));
    expect(turns()).toBeGreaterThan(5);
  }
});
