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

/** Counts the requests to the dead sandboxes that wait for a response at the same time. */
function countHanging(): { now: number; most: number } {
  const hanging = { now: 0, most: 0 };
  dead.behaviour = (socket) => {
    hanging.now++;
    hanging.most = Math.max(hanging.most, hanging.now);
    socket.once('close', () => hanging.now--);
  };
  return hanging;
}

/** Resolves with how many requests to dead sandboxes hang when the healthy one is asked to freeze. */
function whenHealthyIsAsked(hanging: { readonly now: number }): Promise<number> {
  const { behaviour } = healthy;
  return new Promise((resolve) => {
    healthy.behaviour = (socket, head) => {
      resolve(hanging.now);
      behaviour(socket, head);
    };
  });
}

/** The failures of all dead sandboxes. */
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

  test('those of one dead host, more than one page of them, get the places of one host', async () => {
    const [most, mostPerHost] = [64, 4];
    const gateway = await start(`--max-expiries=${most}`, `--max-expiries-per-host=${mostPerHost}`);
    const hanging = countHanging();
    const register = (index: number) =>
      gateway.register(`dead-${index}`, dead.port, { host: 'broken', timeout: 0 });
    // Not all at a time: on a busy machine they would wait for the registry for too long.
    for (let first = 0; first < 300; first += 30)
      await Promise.all(range(30).map((index) => register(first + index)));
    await until('places are taken', () => hanging.now > 0);
    const asked = whenHealthyIsAsked(hanging);
    await gateway.register('healthy', healthy.port, { host: 'good', timeout: 0 });
    expect(await phase(gateway, 'healthy', 'paused')).toBe('paused');
    expect(await asked).toBeGreaterThan(0);
    // A place may be taken again before the end of the connection that had it arrives here.
    expect(hanging.most).toBeLessThanOrEqual(2 * mostPerHost);
  });

  test('those of many hosts', async () => {
    const gateway = await start();
    const hanging = countHanging();
    const register = (index: number) =>
      gateway.register(`dead-${index}`, dead.port, { host: `host-${index}`, timeout: 0 });
    await Promise.all(range(64).map(register));
    await until('they are waited for', () => hanging.now > 0);
    const asked = whenHealthyIsAsked(hanging);
    await gateway.register('healthy', healthy.port, { host: 'good', timeout: 0 });
    expect(await phase(gateway, 'healthy', 'paused')).toBe('paused');
    expect(await asked).toBeGreaterThan(0);
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

test('the dead sandboxes of one owner on a host do not delay the healthy one that he has there', async () => {
  await using gateway = await startGateway();
  const same = { host: 'shared', owner: 'ada', timeout: 0 };
  await Promise.all(range(64).map((index) => gateway.register(`dead-${index}`, dead.port, same)));
  await gateway.register('healthy', healthy.port, same);
  await phase(gateway, 'healthy', 'paused');
  // Without the probe, most of them would have failed before the turn of the healthy one.
  const failed = gateway.log.filter(({ step }) => step === 'freeze');
  expect(failed.length).toBeLessThan(16);
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
