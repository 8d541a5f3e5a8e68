import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startAgent } from '../../support/programs/agent.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { startRedis } from '../../support/servers/redis-server.ts';
import { type Relay, startRelay } from '../../support/servers/relay.ts';
import { until } from '../../support/until.ts';

/** Hooks that note what they do; the machine of the create hook is at `port`. */
function hooksOf(port: number) {
  const file = join(scratch(), 'log');
  const note = `echo "$EVENT" >>'${file}'`;
  return {
    args: [`--create-hook=${note}; echo '{"address":"127.0.0.1","port":${port}}'`, `--kill-hook=${note}`],
    events: () => (existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : []),
  };
}

const create = (gateway: TestGateway) => gateway.call('POST /v2/sandboxes', { templateID: 'base' });
/** The number of records in all phases. */
async function records(gateway: TestGateway): Promise<number> {
  const { text } = await gateway.call('GET /gateway/metrics');
  return [...text.matchAll(/sandboxes\{phase="\w+"\} (\d+)/g)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
}

test.each([
  ['begins', '"phase":"creating"', []],
  ['ends', '"phase":"running"', ['create', 'kill']],
])(
  'a creation that %s while the answer of Redis is lost leaves no sandbox that nobody knows',
  async (_, phase, events) => {
    const redis = await owned(startRedis());
    let isMet = false;
    const relay: Relay = await owned(
      startRelay(redis.port, (data) => {
        if (isMet || !data.includes(phase)) return;
        isMet = true;
        relay.inject({ kind: 'reset', from: 'server', piece: 0, at: 0 });
      }),
    );
    const daemon = await owned(startAgent());
    const { args, events: seen } = hooksOf(daemon.port);
    const gateway = await owned(startGateway({ args: [...args, `--redis=redis://127.0.0.1:${relay.port}`] }));
    const other = await owned(startGateway({ args: [...args, `--redis=${redis.url}`] }));
    // It also loads the script of writes, which takes another exchange.
    await other.register('another', daemon.port);
    expect((await create(gateway)).status).toBe(503);
    await until('only the other one is left', async () => (await records(other)) === 1);
    expect(seen()).toEqual(events);
  },
);

test('a machine that is recorded is not made again by the gateway that removes it', async () => {
  const asked = Promise.withResolvers<void>();
  const daemon = await owned(startRawSandbox(() => asked.resolve()));
  const { args, events } = hooksOf(daemon.port);
  const redis = await owned(startRedis());
  const on = [...args, `--redis=${redis.url}`];
  const first = await owned(startGateway({ args: on }));
  const lost = create(first).catch(() => 'lost');
  await asked.promise;
  await first.kill();
  expect(await lost).toBe('lost');
  // It has another directory for runs, as a gateway on another host has.
  const next = await owned(startGateway({ args: on }));
  await until('it is removed', async () => (await records(next)) === 0);
  expect(events()).toEqual(['create', 'kill']);
});
