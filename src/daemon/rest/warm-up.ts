import { once } from 'node:events';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';

/** The number of calls after which V8 has compiled the code of a response: docs/decisions/019-warm-up.md. */
const CALLS = 60;
const LIMIT_MS = 1000;

/**
 * Warms the daemon up before a pause, by calls to itself, each over a new connection like the first one after a resume.
 * Garbage collection drops caches and compiled code, which would otherwise be rebuilt after the resume. Stops without an
 * error after 1 s, when `signal` aborts, and when the server is not listening.
 */
export async function warmUp(app: FastifyInstance, signal: AbortSignal): Promise<void> {
  const address = app.server.address();
  if (address === null || typeof address === 'string') return;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]);
  try {
    for (let call = 0; call < CALLS; call++) await callOnce(address, limit);
  } catch {
    // An optimisation only: a pause must not fail because of it.
  }
}

async function callOnce({ address, port }: AddressInfo, signal: AbortSignal): Promise<void> {
  // Connecting to a wildcard address (0.0.0.0, ::) reaches this machine.
  const call = request({ host: address, port, path: '/health', agent: false, signal }).end();
  const [response] = await once(call, 'response');
  await once(response.resume(), 'close');
}
