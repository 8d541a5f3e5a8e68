import { once } from 'node:events';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';

/** After so many V8 has compiled what an answer needs, and laid it out anew: docs/decisions/019-rehearsal.md. */
const CALLS = 60;
const LIMIT_MS = 1000;

/**
 * Has the daemon answer calls of its own, each over a new connection, as the first one after a resume comes. A
 * collection throws away caches and code that the next answer would make again; here they are made before the pause.
 * Gives up quietly after a second, when `signal` aborts, and when nobody listens.
 */
export async function rehearse(app: FastifyInstance, signal: AbortSignal): Promise<void> {
  const address = app.server.address();
  if (address === null || typeof address === 'string') return;
  const limit = AbortSignal.any([signal, AbortSignal.timeout(LIMIT_MS)]);
  try {
    for (let call = 0; call < CALLS; call++) await callOnce(address, limit);
  } catch {
    // A pause must not fail for want of a rehearsal.
  }
}

async function callOnce({ address, port }: AddressInfo, signal: AbortSignal): Promise<void> {
  // The addresses that stand for all of them lead to this machine.
  const call = request({ host: address, port, path: '/health', agent: false, signal }).end();
  const [response] = await once(call, 'response');
  await once(response.resume(), 'close');
}
