import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { createConnectRouter } from '@connectrpc/connect';
import { expect, onTestFinished, test } from 'vitest';
import { ENVELOPE_BYTES } from '../../../../../src/daemon/http/protocol/codec.ts';
import { serveByConnectNode } from '../../../../../src/daemon/http/protocol/connect-node.ts';
import { processRpcs } from '../../../../../src/daemon/http/rpc/process.ts';
import type { ProcessTable } from '../../../../../src/daemon/services/process/table.ts';
import { callOf } from '../../../../support/clients/calls.ts';

/** What the daemon reads at once has more than ten thousand of them. */
const FRAMES = 100_000;

test('many small frames take many turns of the event loop', async () => {
  const router = createConnectRouter();
  const rpc = processRpcs({} as ProcessTable).find(({ method }) => method.name === 'StreamInput');
  rpc?.register(router);
  const [handler] = router.handlers;
  if (!handler) throw new Error('no handler');
  let [turns, isOver] = [0, false];
  const count = () => {
    turns++;
    if (!isOver) setImmediate(count);
  };
  const server = createServer((call, response) => {
    setImmediate(count);
    void serveByConnectNode(callOf(call, response), handler);
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const headers = { 'content-type': 'application/connect+proto' };
  const call = request({ port, path: handler.requestPath, method: 'POST', agent: false, headers });
  call.end(Buffer.alloc(ENVELOPE_BYTES * FRAMES));
  const [response] = (await once(call, 'response')) as [IncomingMessage];
  const ended = (await buffer(response)).toString('latin1');
  isOver = true;
  expect(ended.endsWith('{}')).toBe(true);
  expect(turns).toBeGreaterThan(FRAMES / 256);
});
