import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { scratch } from '../../support/machine/scratch.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { owned } from '../../support/programs/owned.ts';
import { type Behaviour, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { startRedis } from '../../support/servers/redis-server.ts';
import { until } from '../../support/until.ts';

/** How late another tenant's sandbox may be paused, in ms; on a busy machine. */
const LATE_MS = 5000;
const FROZEN = JSON.stringify({ notFrozen: 0, failed: 0, unobservable: 0 });

const HEALTHY: Behaviour = (socket) =>
  socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${FROZEN.length}\r\n\r\n${FROZEN}`);
const REFUSING: Behaviour = (socket) => socket.end('HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n');
const HANGING: Behaviour = () => {};

const range = (length: number) => Array.from({ length }, (_, index) => index);

const EVE = { 'x-api-key': 'key-of-eve' };

/** A gateway with the clients eve, who attacks, and ada. */
async function start(kind: string, ...args: readonly string[]): Promise<TestGateway> {
  const keys = join(scratch(), 'keys');
  writeFileSync(keys, 'platform key\nclient eve key-of-eve\nclient ada key-of-ada\n');
  const redis = kind === 'redis' ? [`--redis=${(await owned(startRedis())).url}`] : [];
  return owned(startGateway({ args: [`--key-file=${keys}`, ...redis, ...args] }));
}

const stateOf = async (gateway: TestGateway, id: string) => (await gateway.call(`GET /sandboxes/${id}`)).body;

const isPaused = (gateway: TestGateway, id: string) =>
  until(
    `'${id}' is paused`,
    async () => (await stateOf(gateway, id)).phase,
    (phase) => phase === 'paused',
    LATE_MS,
  );

describe.each(['embedded', 'redis'])(
  'one tenant does not keep others from expiring, with the registry %s',
  (kind) => {
    test('by new times to live for what has failed: a failure counts until the guest has done better', async () => {
      const gateway = await start(kind, '--max-expiries=4');
      const guest = await owned(startRawSandbox(REFUSING));
      const healthy = await owned(startRawSandbox(HEALTHY));
      const ids = range(12).map((index) => `eve-${index}`);
      for (const id of ids) await gateway.register(id, guest.port, { owner: 'eve', host: id, timeout: 0 });
      for (const id of ids)
        await until('it has failed', async () => (await stateOf(gateway, id)).failures > 0);
      guest.behaviour = HANGING;
      let isOver = false;
      onTestFinished(() => {
        isOver = true;
      });
      const renew = async (id: string) => {
        while (!isOver)
          await gateway.call(`POST /sandboxes/${id}/timeout`, { timeout: 0 }, EVE).catch(() => {});
      };
      void Promise.all(ids.map(renew));
      for (const index of range(3)) {
        await gateway.register(`ada-${index}`, healthy.port, { owner: 'ada', host: 'good', timeout: 0 });
        expect(await isPaused(gateway, `ada-${index}`)).toBe('paused');
      }
      const failures = await Promise.all(ids.map(async (id) => (await stateOf(gateway, id)).failures));
      expect(Math.min(...failures)).toBeGreaterThan(0);
    });

    test('by many that hang, on the same host and on others', async () => {
      const gateway = await start(kind, '--max-expiries=16', '--max-expiries-per-host=4');
      const guest = await owned(startRawSandbox(HANGING));
      const healthy = await owned(startRawSandbox(HEALTHY));
      for (const index of range(40))
        await gateway.register(`eve-${index}`, guest.port, {
          owner: 'eve',
          host: `h${index % 8}`,
          timeout: 0,
        });
      for (const index of range(8)) {
        await gateway.register(`ada-${index}`, healthy.port, { owner: 'ada', host: `h${index}`, timeout: 0 });
        expect(await isPaused(gateway, `ada-${index}`)).toBe('paused');
      }
    });
  },
);
