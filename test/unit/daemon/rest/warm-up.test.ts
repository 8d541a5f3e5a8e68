import { once } from 'node:events';
import Fastify from 'fastify';
import { expect, test, vi } from 'vitest';
import { warmUp } from '../../../../src/daemon/rest/warm-up.ts';

const never = new AbortController().signal;

test('sends requests to the daemon, each over a new connection', async () => {
  // Without a time limit: the machine may be slow.
  vi.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(never);
  const ports = new Set<number | undefined>();
  await using app = Fastify();
  app.get('/health', (request, reply) => {
    ports.add(request.socket.remotePort);
    return reply.code(204).send();
  });
  await app.listen({ port: 0, host: '0.0.0.0' });
  await warmUp(app, never);
  expect(ports.size).toBe(60);
});

test('does nothing when the server does not listen', async () => {
  await using app = Fastify();
  await expect(warmUp(app, never)).resolves.toBeUndefined();
});

test('ends without an error on a time-out, and when the caller disconnects', {
  timeout: 10_000,
}, async () => {
  await using app = Fastify({ forceCloseConnections: true });
  app.get('/health', () => new Promise(() => {}));
  await app.listen({ port: 0, host: '127.0.0.1' });
  await expect(warmUp(app, never)).resolves.toBeUndefined();

  const caller = new AbortController();
  const result = warmUp(app, caller.signal);
  await once(app.server, 'request');
  caller.abort();
  await expect(result).resolves.toBeUndefined();
});
