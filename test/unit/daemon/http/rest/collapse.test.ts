import { request } from 'node:http';
import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { onAbort } from '../../../../../src/base/abort.ts';
import { EnvdError } from '../../../../../src/base/errors.ts';
import { sendError } from '../../../../../src/daemon/http/admission/errors.ts';
import { collapseRoutes } from '../../../../../src/daemon/http/rest/pause.ts';
import { Collapser, type CollapseStatistics } from '../../../../../src/daemon/services/pause/collapse.ts';
import { sharedLimits, withCalls } from '../../../../support/clients/calls.ts';

function serve(collapser: Collapser, shared = sharedLimits()) {
  const app = Fastify();
  withCalls(app, shared);
  app.setErrorHandler((error, _request, reply) => sendError(reply, error));
  collapseRoutes(app, collapser);
  return app;
}

/** A collapse that runs until its caller disconnects. */
class EndlessCollapser extends Collapser {
  readonly started = Promise.withResolvers<void>();
  readonly cancelled = Promise.withResolvers<void>();

  override collapse(signal: AbortSignal): Promise<CollapseStatistics> {
    onAbort(signal, this.cancelled.resolve);
    this.started.resolve();
    return this.cancelled.promise.then(() => Promise.reject(signal.reason));
  }
}

test('answers with the statistics in the documented order', async () => {
  const answer = await serve(new Collapser()).inject({ method: 'POST', url: '/collapse' });
  expect(answer.statusCode).toBe(200);
  const keys = ['regions', 'chunks', 'collapsed', 'alreadyHuge', 'skipped', 'elapsedMs'];
  expect(Object.keys(answer.json())).toEqual(keys);
});

test('answers 503 while another collapse is in progress', async () => {
  const app = serve(new Collapser());
  const answers = await Promise.all([1, 2].map(() => app.inject({ method: 'POST', url: '/collapse' })));
  expect(answers.map(({ statusCode }) => statusCode).sort()).toEqual([200, 503]);
});

test.each(['', '{"some":"body"}'])('ends when the caller disconnects, body %j', async (body) => {
  const collapser = new EndlessCollapser();
  const app = serve(collapser);
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  const call = request(`${url}/collapse`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  });
  call.on('error', () => {});
  call.end(body);
  await collapser.started.promise;
  call.destroy();
  await expect(collapser.cancelled.promise).resolves.toBeInstanceOf(Event);
  await app.close();
});

test('continues after its body has been read, as long as the caller is connected', async () => {
  const collapser = new EndlessCollapser();
  const app = serve(collapser);
  const url = await app.listen({ port: 0, host: '127.0.0.1' });
  const call = request(`${url}/collapse`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
  });
  call.on('error', () => {});
  call.end('{"some":"body"}');
  await collapser.started.promise;
  // When the other request is answered, a disconnection of the first would have been noticed.
  expect((await fetch(url)).status).toBe(404);
  const ended = await Promise.race([collapser.cancelled.promise.then(() => true), Promise.resolve(false)]);
  expect(ended).toBe(false);
  call.destroy();
  await collapser.cancelled.promise;
  await app.close();
});

test('ends with 503 when the daemon stops', async () => {
  const collapser = new EndlessCollapser();
  const stop = new AbortController();
  const app = serve(collapser, sharedLimits(undefined, stop.signal));
  const answer = app.inject({ method: 'POST', url: '/collapse' });
  await collapser.started.promise;
  stop.abort(new EnvdError('unavailable', 'the daemon is stopping'));
  expect((await answer).json()).toEqual({ code: 503, message: 'the daemon is stopping' });
});
