import { Agent, request } from 'node:http';
import { expect, test } from 'vitest';
import { API_KEY, startGateway } from '../../support/programs/gateway.ts';
import { until } from '../../support/until.ts';

/* Requests without a key that are refused fill no log, and hide no line of a client that has one. */

const REQUESTS = 3000;

test.each([
  ['for a sandbox that does not exist', { path: '/x', headers: { 'svc-sandbox-id': 'none' } }],
  ['for a sandbox with an invalid name', { path: '/x', headers: { 'svc-sandbox-id': '???' } }],
  ['for an operation that needs a key', { path: '/sandboxes', headers: {} }],
])('requests %s', async (_name, asked) => {
  await using gateway = await startGateway();
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  const call = (headers = {}) =>
    new Promise<number | undefined>((resolve, reject) => {
      const to = { host: '127.0.0.1', port: gateway.port, agent };
      request({ ...to, ...asked, headers: { ...asked.headers, ...headers } }, (response) =>
        response.resume().once('end', () => resolve(response.statusCode)),
      )
        .once('error', reject)
        .end();
    });
  for (const status of await Promise.all(Array.from({ length: REQUESTS }, () => call())))
    expect(status).toBeGreaterThanOrEqual(400);
  const id = 'with-a-key';
  await call({ 'x-api-key': API_KEY, 'x-request-id': id });
  await until('the call with a key is logged', () =>
    gateway.log.some((line) => JSON.stringify(line).includes(id)),
  );
  agent.destroy();
  const lines = gateway.log.filter(({ msg }) => msg === 'request' || msg === 'operation');
  // Each period has a limit of its own, and there may be some on a busy machine.
  expect(lines.length).toBeLessThan(REQUESTS / 2);
});
