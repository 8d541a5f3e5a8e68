import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { API_KEY, startGateway } from '../../support/programs/gateway.ts';
import { startRedis } from '../../support/servers/redis-server.ts';

const OWNER = { 'x-api-key': 'key-of-eve' };

/** Two gateways with one registry. */
async function both(quota: string) {
  const [redis, agent] = await Promise.all([startRedis(), startAgent()]);
  let created = 0;
  const hook = createServer((request, response) => {
    request.resume().on('end', () => {
      created++;
      response.end(JSON.stringify({ address: '127.0.0.1', port: agent.port }));
    });
  }).listen(0, '127.0.0.1');
  await once(hook, 'listening');
  const url = `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`;
  const keys = join(scratch(), 'keys');
  writeFileSync(keys, `platform ${API_KEY}-2\nclient eve key-of-eve\nquota eve ${quota}\n`);
  const args = [`--redis=${redis.url}`, `--create-hook=${url}`, `--key-file=${keys}`];
  const gateways = await Promise.all([startGateway({ args }), startGateway({ args })]);
  onTestFinished(async () => {
    for (const each of [...gateways, redis, agent]) await each[Symbol.asyncDispose]();
    hook.closeAllConnections();
    hook.close();
  });
  const race = async (count: number) => {
    const answers = await Promise.all(
      Array.from({ length: count }, (_, index) =>
        (gateways[index % 2] ?? gateways[0]).call('POST /v2/sandboxes', { templateID: 'base' }, OWNER),
      ),
    );
    const refused = answers.filter(({ status }) => status !== 201);
    return { made: answers.length - refused.length, refused };
  };
  return { gateways, race, created: () => created };
}

test('a hundred creations that race through two gateways make as many sandboxes as the quota has', async () => {
  const { gateways, race, created } = await both('sandboxes=7');
  const { made, refused } = await race(100);
  expect([made, created()]).toEqual([7, 7]);
  expect(new Set(refused.map(({ status, headers }) => `${status} ${headers.get('retry-after')}`))).toEqual(
    new Set(['429 5']),
  );
  expect((await gateways[1].call('GET /sandboxes', undefined, OWNER)).body).toHaveLength(7);
});

test('a hundred creations that race through two gateways are as many as a minute has', async () => {
  const { race, created } = await both('creates=9');
  const { made, refused } = await race(100);
  // One more may have been possible every 60/9 s.
  expect(made).toBeGreaterThanOrEqual(9);
  expect(made).toBeLessThanOrEqual(9 + 18);
  expect(created()).toBe(made);
  expect(
    refused.every(({ status, headers }) => status === 429 && Number(headers.get('retry-after')) >= 1),
  ).toBe(true);
});
