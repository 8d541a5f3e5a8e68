import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import pino from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { App, type AppOptions, type AppServices } from '../../../src/daemon/app.ts';
import { Guest } from '../../../src/daemon/services/guest/guest.ts';
import { until } from '../../support/until.ts';

type Build = typeof import('../../../src/daemon/routes.ts')['buildRoutes'];
type Routes = import('../../../src/daemon/routes.ts').Routes;

const build = vi.hoisted(() => vi.fn());
vi.mock('../../../src/daemon/routes.ts', () => ({ buildRoutes: build as unknown as Build }));

/** With the parts that it needs for `/health`. */
function newApp(): App {
  const users = { byName: async () => null };
  const services = { guest: new Guest(users as never), entries: {} } as unknown as AppServices;
  const options = {
    logger: pino({ enabled: false }),
    shutdown: new AbortController().signal,
    connections: { guard: () => {} },
  } as unknown as AppOptions;
  return new App(services, options);
}

let app: App;
let url: string;
let served: string[];
beforeEach(async () => {
  served = [];
  build.mockReset();
  app = newApp();
  await app.listen({ port: 0, host: '127.0.0.1', fd: null });
  url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
});
afterEach(() => app.close());

/** Routes that note what they serve. */
async function routes(ready: Promise<void> = Promise.resolve()): Promise<Routes> {
  const serve = (request: IncomingMessage, response: ServerResponse) => {
    served.push(request.url ?? '');
    response.writeHead(200).end();
  };
  await ready;
  return { serve, dropBuffers: () => {} };
}

test('health is answered without the routes, which are built once for all requests that need them', async () => {
  const ready = Promise.withResolvers<void>();
  build.mockImplementation(() => routes(ready.promise));
  expect((await fetch(`${url}/health`)).status).toBe(204);
  expect(build).not.toHaveBeenCalled();
  const answers = ['/envs', '/metrics', '/unknown'].map((path) => fetch(url + path));
  await until('the routes are being built', () => build.mock.calls.length > 0);
  expect((await fetch(`${url}/health`)).status).toBe(204);
  ready.resolve();
  expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200]);
  expect(served.sort()).toEqual(['/envs', '/metrics', '/unknown']);
  expect(build).toHaveBeenCalledTimes(1);
});

test('a client that has gone before the routes are there is not served', async () => {
  const ready = Promise.withResolvers<void>();
  build.mockImplementation(() => routes(ready.promise));
  const request = once(app.server, 'request');
  const client = connect(Number(new URL(url).port), '127.0.0.1');
  client.write('GET /envs HTTP/1.1\r\nHost: x\r\n\r\n');
  const [, response] = (await request) as [IncomingMessage, ServerResponse];
  client.destroy();
  await once(response, 'close');
  ready.resolve();
  await app.load();
  await setImmediate();
  expect(served).toEqual([]);
});

test('routes that cannot be built end the request and are built anew for the next', async () => {
  build.mockImplementationOnce(() => {
    throw new Error('no memory');
  });
  await expect(fetch(`${url}/envs`)).rejects.toThrow();
  build.mockImplementation(() => routes());
  expect((await fetch(`${url}/envs`)).status).toBe(200);
});

test('it says why it cannot listen', async () => {
  const other = newApp();
  const { port } = app.server.address() as AddressInfo;
  await expect(other.listen({ port, host: '127.0.0.1', fd: null })).rejects.toMatchObject({
    code: 'EADDRINUSE',
  });
  await other.close();
});
