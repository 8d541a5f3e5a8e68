import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Forwarded } from '../../../src/gateway/access/forwarded.ts';
import { rewriteRequest } from '../../../src/gateway/proxy/headers.ts';
import { hasPassed, Via } from '../../../src/gateway/proxy/via.ts';
import { closedOperation, originForm } from '../../../src/gateway/routes/closed-paths.ts';
import { SANDBOX_ID, TargetReader } from '../../../src/gateway/routes/target.ts';
import { cut, unlessRefused } from '../refused.ts';
import { Wire } from '../wire.ts';

const targets = new TargetReader('Svc', 'sandboxes.test');
const via = new Via('key');
const forwarded = new Forwarded(null);
const HOP_BY_HOP = ['connection', 'keep-alive', 'proxy-connection', 'upgrade', 'http2-settings', 'expect'];

/** Requests at the gateway. First byte: the number of cuts that follow, then the bytes of a connection. */
export async function fuzz(data: Buffer): Promise<void> {
  const cuts = data.subarray(1, 1 + (data[0] ?? 0));
  const errors: unknown[] = [];
  const server = createServer((request, response) => {
    try {
      check(request, response);
    } catch (error) {
      errors.push(error);
      response.destroy();
    }
  });
  const wire = new Wire(...cut(data.subarray(1 + cuts.length), cuts));
  server.emit('connection', wire);
  await wire.gone;
  for (const error of errors) throw error;
}

function check(request: IncomingMessage, response: ServerResponse): void {
  const target = unlessRefused(() => targets.read(request));
  if (target) {
    assert.match(target.id, SANDBOX_ID);
    assert(Number.isInteger(target.port) && target.port >= 1 && target.port <= 65535);
  }
  const pseudonym = via.pseudonymFor(target?.id ?? 'one');
  assert.equal(hasPassed(request.headers.via, pseudonym), false);
  const path = originForm(request.url ?? '');
  assert(path === null || path.startsWith('/'));
  closedOperation(path ?? '');
  const framing = request.headers['content-length'];
  rewriteRequest(request, { pseudonym, host: null, forwarded });
  // Nobody is trusted, so it tells of the connection alone.
  assert.doesNotMatch(String(request.headers['x-forwarded-for']), /,/);
  for (const name of HOP_BY_HOP) assert(!Object.hasOwn(request.headers, name));
  // The sandbox must read the body as the gateway did.
  assert.equal(request.headers['content-length'], framing);
  assert(hasPassed(request.headers.via, pseudonym));
  request.resume();
  response.end();
}
