import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { ExpiryLanes } from '../../../src/gateway/expiry/lanes.ts';
import { startGateway, type TestGateway } from '../../support/programs/gateway.ts';
import { type RawSandbox, startRawSandbox } from '../../support/programs/raw-sandbox.ts';
import { phase } from '../../support/servers/hook.ts';
import { startRedis } from '../../support/servers/redis-server.ts';
import { until } from '../../support/until.ts';

const FROZEN = JSON.stringify({ notFrozen: 0, failed: 0, unobservable: 0 });

let dead: RawSandbox;
let healthy: RawSandbox;

beforeEach(async () => {
  // It accepts connections and never responds.
  dead = await startRawSandbox(() => {});
  healthy = await startRawSandbox((socket) =>
    socket.end(`HTTP/1.1 200 OK\r\ncontent-length: ${FROZEN.length}\r\n\r\n${FROZEN}`),
  );
});

afterEach(async () => {
  for (const each of [dead, healthy]) await each[Symbol.asyncDispose]();
});

const range = (length: number) => Array.from({ length }, (_, index) => index);

/** The failures of all dead sandboxes: none while their first freeze is waited for. */
async function failures(gateway: TestGateway): Promise<readonly number[]> {
  const { body } = await gateway.call('GET /sandboxes');
  return body
    .filter(({ sandboxID }: { sandboxID: string }) => sandboxID.startsWith('dead'))
    .map((each: { failures: number }) => each.failures);
}

describe.each(['embedded', 'redis'])('dead sandboxes do not delay others, with the registry %s', (kind) => {
  async function start(...args: readonly string[]): Promise<TestGateway> {
    const redis = kind === 'redis' ? await startRedis() : null;
    const gateway = await startGateway({ args: [...args, ...(redis ? [`--redis=${redis.url}`] : [])] });
    onTestFinished(async () => {
      await gateway[Symbol.asyncDispose]();
      await redis?.[Symbol.asyncDispose]();
    });
    return gateway;
  }

  test('those of one dead host, more than one page of them', async () => {
    const gateway = await start();
    const register = (index: number) =>
      gateway.register(`dead-${index}`, dead.port, { host: 'broken', timeout: 0 });
    await Promise.all(range(300).map(register));
    await gateway.register('healthy', healthy.port, { host: 'good', timeout: 0 });
    await phase(gateway, 'healthy', 'paused');
    // Not all dead ones came before it. On a busy machine the time of some may be up by now.
    expect(Math.min(...(await failures(gateway)))).toBe(0);
  });

  test('those of many hosts', async () => {
    const gateway = await start();
    const register = (index: number) =>
      gateway.register(`dead-${index}`, dead.port, { host: `host-${index}`, timeout: 0 });
    await Promise.all(range(64).map(register));
    await gateway.register('healthy', healthy.port, { host: 'good', timeout: 0 });
    await phase(gateway, 'healthy', 'paused');
    // Not all dead ones came before it. On a busy machine the time of some may be up by now.
    expect(Math.min(...(await failures(gateway)))).toBe(0);
  });

  test('those whose last expiry has failed', async () => {
    const refusing = await startRawSandbox((socket) =>
      socket.end('HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n'),
    );
    onTestFinished(() => refusing[Symbol.asyncDispose]());
    const gateway = await start('--max-expiries=4');
    const register = (index: number) =>
      gateway.register(`dead-${index}`, refusing.port, { host: `host-${index}`, timeout: 0 });
    await Promise.all(range(20).map(register));
    await until('all have failed', async () => Math.min(...(await failures(gateway))) > 0);
    // Now they hang: of four places they get one.
    refusing.behaviour = () => {};
    for (const index of range(5)) {
      await gateway.register(`healthy-${index}`, healthy.port, { host: 'good', timeout: 0 });
      expect(await phase(gateway, `healthy-${index}`, 'paused')).toBe('paused');
    }
  });
});

test('places are shared out', () => {
  const lanes = new ExpiryLanes({ maxExpiries: 8, maxExpiriesPerHost: 3 });
  const take = (id: string, host: string, failed = 0) =>
    lanes.take({ id, host, owner: null, failures: failed });
  expect(['a1', 'a2', 'a3', 'a4'].map((id) => take(id, 'a'))).toEqual([true, true, true, false]);
  expect(take('a1', 'b')).toBe(false);
  expect(['f1', 'f2', 'f3'].map((id) => take(id, id, 1))).toEqual([true, true, false]);
  expect(['b', 'c', 'd', 'e'].map((id) => take(id, id))).toEqual([true, true, true, false]);
  lanes.release('a1');
  expect(take('a4', 'a')).toBe(true);
});
