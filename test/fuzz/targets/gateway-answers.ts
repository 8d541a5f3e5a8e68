import assert from 'node:assert/strict';
import { IncomingMessage, ServerResponse, request as send } from 'node:http';
import { Socket } from 'node:net';
import { rewriteResponse } from '../../../src/gateway/proxy/headers.ts';
import { checkResponse, InvalidResponse } from '../../../src/gateway/proxy/response-checks.ts';
import { cut } from '../refused.ts';
import { Wire } from '../wire.ts';

/** Answers of a sandbox. First byte: the number of cuts that follow, then the bytes of a connection. */
export async function fuzz(data: Buffer): Promise<void> {
  const cuts = data.subarray(1, 1 + (data[0] ?? 0));
  const wire = new Wire(...cut(data.subarray(1 + cuts.length), cuts));
  const errors: unknown[] = [];
  const call = send({ host: 'sandbox', createConnection: () => wire as unknown as Socket });
  // What breaks the protocol is an error of this exchange alone.
  call.on('error', () => {});
  call.on('response', (upstream) => {
    upstream.on('error', () => {});
    try {
      forward(upstream);
    } catch (error) {
      if (!(error instanceof InvalidResponse)) errors.push(error);
    }
    upstream.resume();
  });
  call.on('upgrade', () => wire.destroy());
  call.end();
  await wire.gone;
  for (const error of errors) throw error;
}

/** Node's server must be able to send what was not refused. */
function forward(upstream: IncomingMessage): void {
  checkResponse(upstream);
  const request = new IncomingMessage(new Socket());
  request.httpVersion = '1.1';
  request.headers = {};
  rewriteResponse(upstream, request, { close: false, vary: 'a' });
  const response = new ServerResponse(request);
  response.writeHead(upstream.statusCode ?? 0, upstream.statusMessage, upstream.headers);
  assert.equal(upstream.headers.connection, 'keep-alive');
}
