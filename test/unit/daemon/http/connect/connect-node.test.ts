import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { create, fromBinary, fromJsonString } from '@bufbuild/protobuf';
import { createConnectRouter } from '@connectrpc/connect';
import { expect, onTestFinished, test } from 'vitest';
import { Unread } from '../../../../../src/base/unread.ts';
import { CallScope } from '../../../../../src/daemon/http/admission/call-scope.ts';
import { ENVELOPE_BYTES, frameOf } from '../../../../../src/daemon/http/connect/codec.ts';
import {
  COMPRESSIONS,
  serveByConnectNode,
  translateErrors,
} from '../../../../../src/daemon/http/connect/connect-node.ts';
import { unaryRoute } from '../../../../../src/daemon/http/connect/connect-unary.ts';
import { type ListResponse, ListResponseSchema, Process } from '../../../../../src/gen/process/process_pb.js';
import { sharedLimits } from '../../../../support/clients/calls.ts';

/** More than ten slices. */
const PROCESSES = Array.from({ length: 1000 }, (_, pid) => ({
  ...{ pid, config: { cmd: 'cat', args: ['x'.repeat(3000)] } },
}));

/** Serves List by connect-node; `turns`: those of the event loop between the call and its answer. */
async function serveList(): Promise<{ readonly port: number; readonly turns: () => number }> {
  let [turns, atCall, atAnswer, isOver] = [0, 0, 0, false];
  const count = () => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  setImmediate(count);
  const list = unaryRoute({
    ...{ method: Process.method.list, ignoreUnknownFields: true },
    handle: (_request, { list }) => {
      atCall = turns;
      return (
        list?.addAll(
          PROCESSES,
          () => 3000,
          (processes) => ({ processes: [...processes] }),
        ) ?? {}
      );
    },
  });
  const router = createConnectRouter({ acceptCompression: COMPRESSIONS });
  list.register(router, { interceptors: [translateErrors] });
  const [handler] = router.handlers;
  if (!handler) throw new Error('no handler');
  const shared = sharedLimits(new Unread(1e9));
  const server = createServer((request, response) => {
    const writeHead = response.writeHead.bind(response);
    response.writeHead = ((...head: Parameters<typeof writeHead>) => {
      atAnswer = turns;
      return writeHead(...head);
    }) as typeof writeHead;
    const scope = new CallScope({ operation: 'List', request, response }, shared, () => {});
    void serveByConnectNode(scope, handler);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    isOver = true;
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, turns: () => atAnswer - atCall };
}

const message = (body: Buffer) => body.subarray(ENVELOPE_BYTES, ENVELOPE_BYTES + body.readUInt32BE(1));

test.each<[string, Buffer, Record<string, string>, (body: Buffer) => ListResponse]>([
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
  const { port, turns } = await serveList();
  const call = request({ port, path: '/process.Process/List', method: 'POST', agent: false });
  for (const [name, value] of Object.entries({ 'content-type': type, ...headers }))
    call.setHeader(name, value);
  call.end(body);
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  const answer = decode(await buffer(response));
  expect(answer).toEqual(create(ListResponseSchema, { processes: PROCESSES }));
  expect(turns()).toBeGreaterThan(10);
});
