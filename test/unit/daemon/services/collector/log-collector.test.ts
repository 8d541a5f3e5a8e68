import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import {
  LogCollector,
  UNNAMED_LIMIT_BYTES,
} from '../../../../../src/daemon/services/collector/log-collector.ts';
import { LogQueue } from '../../../../../src/daemon/services/collector/log-queue.ts';

const BOX = { address: '10.0.0.1:80', sandboxID: 'box', templateID: 'plate' };
const NOTHING = { address: null, sandboxID: null, templateID: null };

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const NEVER = -1;

/** A collector whose answers are `statuses`, the last one again and again; 0: the connection fails. */
function setUp(url: URL | null = null) {
  const queue = new LogQueue(UNNAMED_LIMIT_BYTES);
  const seen = { bodies: [] as unknown[][], urls: [] as string[], refreshed: 0, failures: [] as unknown[] };
  const state = { paused: false, statuses: [200] };
  const collector = new LogCollector({
    ...{ queue, url },
    isPaused: () => state.paused,
    refresh: () => void seen.refreshed++,
    async post(to, body) {
      seen.urls.push(to.href);
      const status = (state.statuses.length > 1 ? state.statuses.shift() : state.statuses[0]) ?? 0;
      if (status === NEVER) return new Promise<never>(() => {});
      if (status === 0) throw new Error('no answer');
      if (status < 300) seen.bodies.push(JSON.parse(body) as unknown[]);
      return status;
    },
    onFailure: (error) => {
      seen.failures.push(error);
      queue.write('{"n":"failure"}\n');
    },
  });
  const log = (n: number) => queue.write(`{"n":${n}}\n`);
  return { queue, collector, seen, state, log };
}

test('lines from before the collector is named are sent, with the ids', async () => {
  const { collector, seen, log } = setUp();
  log(1);
  log(2);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(seen.urls).toEqual([]);
  collector.name(BOX);
  await vi.advanceTimersByTimeAsync(1000);
  const ids = { instanceID: 'box', envID: 'plate' };
  expect(seen.bodies).toEqual([
    [
      { ...ids, n: 1 },
      { ...ids, n: 2 },
    ],
  ]);
});

test('nothing is kept when there is no collector, and when none is named within a minute', async () => {
  const { collector, queue, log } = setUp();
  log(1);
  collector.name(NOTHING);
  log(2);
  expect(queue.isEmpty).toBe(true);
  const late = setUp();
  late.log(1);
  await vi.advanceTimersByTimeAsync(61_000);
  late.log(2);
  await vi.advanceTimersByTimeAsync(1000);
  expect(late.queue.isEmpty).toBe(true);
  late.collector.name(BOX);
  late.log(3);
  await vi.advanceTimersByTimeAsync(1000);
  expect(late.seen.bodies).toMatchObject([[{ n: 3 }]]);
});

test('retries with growing pauses, and tells of the first failure only, which is not sent', async () => {
  const { collector, seen, state, log } = setUp();
  collector.name(BOX);
  state.statuses = [0, 500, 429, 408, 302, 503, 200];
  log(1);
  await vi.advanceTimersByTimeAsync(5000);
  expect(seen.urls.length).toBeGreaterThan(2);
  expect(seen.urls.length).toBeLessThan(7);
  log(2);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(seen.bodies).toMatchObject([[{ n: 1 }, { n: 2 }]]);
  expect(seen.failures).toHaveLength(1);
});

test('an idle collector has no timer, and retries are at most 30 s apart', async () => {
  const { collector, seen, state, log } = setUp();
  collector.name(BOX);
  expect(vi.getTimerCount()).toBe(0);
  state.statuses = [0];
  log(1);
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(seen.urls.length).toBeGreaterThan(120);
  expect(seen.urls.length).toBeLessThan(260);
  state.statuses = [200];
  await vi.advanceTimersByTimeAsync(30_000);
  expect([seen.bodies.length, vi.getTimerCount()]).toEqual([1, 0]);
});

test('a batch that is refused for good is dropped', async () => {
  const { collector, queue, seen, state, log } = setUp();
  collector.name(BOX);
  state.statuses = [400, 200];
  log(1);
  await vi.advanceTimersByTimeAsync(1000);
  log(2);
  await vi.advanceTimersByTimeAsync(1000);
  expect(seen.bodies).toMatchObject([[{ n: 2 }]]);
  expect(queue.counts).toEqual({ sent: 1, refused: 1, dropped: 0 });
});

test('in a pause nothing is sent and there is no timer; afterwards the metadata are read again', async () => {
  const { collector, seen, state, log } = setUp();
  collector.name(BOX);
  log(1);
  state.paused = true;
  collector.pause();
  log(2);
  // A reading of before the resume.
  collector.name(BOX);
  expect(vi.getTimerCount()).toBe(0);
  state.paused = false;
  log(3);
  await vi.advanceTimersByTimeAsync(1000);
  expect([seen.bodies, seen.refreshed]).toEqual([[], 1]);
  collector.name({ ...BOX, address: 'https://other/', sandboxID: 'box-2' });
  await vi.advanceTimersByTimeAsync(1000);
  expect(seen.bodies).toMatchObject([
    [
      { n: 1, instanceID: 'box' },
      { n: 2, instanceID: 'box-2' },
      { n: 3, instanceID: 'box-2' },
    ],
  ]);
  expect(seen.urls).toEqual(['https://other/']);
});

test('after a pause the next try does not wait as long as the last failures made it', async () => {
  const { collector, seen, state, log } = setUp();
  collector.name(BOX);
  state.statuses = [0];
  log(1);
  await vi.advanceTimersByTimeAsync(600_000);
  collector.pause();
  state.statuses = [200];
  log(2);
  await vi.advanceTimersByTimeAsync(1000);
  expect(seen.refreshed).toBe(1);
  collector.name(BOX);
  await vi.advanceTimersByTimeAsync(1000);
  expect(seen.bodies).toMatchObject([[{ n: 1 }, { n: 2 }]]);
});

test('a fixed address overrides the one that is named', async () => {
  const { collector, seen, log } = setUp(new URL('http://fixed/'));
  collector.name(BOX);
  log(1);
  await vi.advanceTimersByTimeAsync(1000);
  expect(seen.urls).toEqual(['http://fixed/']);
});

test('an address that is none is told once, and nothing is kept', async () => {
  const { collector, queue, seen, log } = setUp();
  for (let i = 0; i < 3; i++) collector.name({ ...BOX, address: 'file:///etc/shadow' });
  log(1);
  expect(queue.isEmpty).toBe(true);
  expect(seen.failures).toHaveLength(1);
});

test('a close sends what waits, batch after batch', async () => {
  const { collector, queue, seen, log } = setUp();
  collector.name(BOX);
  for (let n = 0; n < 50_000; n++) log(n);
  await collector.close();
  expect(queue.isEmpty).toBe(true);
  expect(seen.bodies.flat()).toHaveLength(50_000);
});

test('a close waits half a second for a collector that does not answer', async () => {
  const { collector, state, log } = setUp();
  state.statuses = [NEVER];
  collector.name(BOX);
  log(1);
  let isClosed = false;
  void collector.close().then(() => {
    isClosed = true;
  });
  await vi.advanceTimersByTimeAsync(499);
  expect(isClosed).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  expect(isClosed).toBe(true);
});
