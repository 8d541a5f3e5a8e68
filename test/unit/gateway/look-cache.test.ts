import { expect, onTestFinished, test, vi } from 'vitest';
import { register } from '../../../src/gateway/leases/transitions.ts';
import { LookCache, type RecordSource } from '../../../src/gateway/registry/look-cache.ts';
import type { ReadRecord } from '../../../src/gateway/registry/registry.ts';

const now = 1_000_000;
const look = (port: number): ReadRecord => {
  const registration = {
    ...{ id: 'one', address: '10.0.0.1', ip: '10.0.0.1', port, accessToken: null, metadata: {}, owner: null },
    ...{ envdVersion: '0.6.4', onExpiry: 'pause' as const },
  };
  return { sandbox: register(null, registration, 60, now), now };
};

/** A registry that answers when it is told to, in the order of the questions. */
function slowSource() {
  const reads: PromiseWithResolvers<ReadRecord>[] = [];
  const ports: PromiseWithResolvers<boolean>[] = [];
  const asked = <T>(questions: PromiseWithResolvers<T>[]) => {
    const question = Promise.withResolvers<T>();
    questions.push(question);
    return question.promise;
  };
  const source: RecordSource = {
    read: () => asked(reads),
    isDaemon: () => asked(ports),
    beat: async () => {},
  };
  return { source, reads, ports };
}

test('a read that is in flight is shared until the record changes, and not kept then', async () => {
  const { source, reads } = slowSource();
  using cache = new LookCache(source);
  const early = [cache.look('one'), cache.look('one')];
  expect(reads).toHaveLength(1);
  cache.forget('one');
  const late = cache.look('one');
  expect(reads).toHaveLength(2);
  reads[1]?.resolve(look(2));
  expect((await late).sandbox?.port).toBe(2);
  // From before the change, and replied behind it.
  reads[0]?.resolve(look(1));
  expect((await Promise.all(early)).map(({ sandbox }) => sandbox?.port)).toEqual([1, 1]);
  expect((await cache.look('one')).sandbox?.port).toBe(2);
  expect(reads).toHaveLength(2);
});

test('what was asked before messages were lost is not kept', async () => {
  const { source, reads } = slowSource();
  using cache = new LookCache(source);
  const early = cache.look('one');
  cache.forgetAll();
  reads[0]?.resolve(look(1));
  await early;
  void cache.look('one');
  expect(reads).toHaveLength(2);
});

test.each<[string, (cache: LookCache) => void]>([
  ['a daemon came', (cache) => cache.forgetPort(80)],
  ['messages were lost', (cache) => cache.forgetAll()],
])('of ports too, what was asked before %s is not kept', async (_, forget) => {
  const { source, ports } = slowSource();
  using cache = new LookCache(source);
  const early = cache.isDaemon('10.0.0.1', 80);
  forget(cache);
  ports[0]?.resolve(false);
  expect(await early).toBe(false);
  const late = cache.isDaemon('10.0.0.1', 80);
  ports[1]?.resolve(true);
  expect(await late).toBe(true);
  expect(await cache.isDaemon('10.0.0.1', 80)).toBe(true);
  expect(ports).toHaveLength(2);
});

test('neither an unknown sandbox nor one that has expired is kept, and an error is none', async () => {
  const { source, reads } = slowSource();
  using cache = new LookCache(source);
  for (const [index, answer] of [
    { sandbox: null, now },
    { ...look(1), now: now + 60_000 },
  ].entries()) {
    const asked = cache.look('one');
    reads[index]?.resolve(answer);
    expect(await asked).toEqual(answer);
  }
  const failed = cache.look('one');
  reads[2]?.reject(new Error('away'));
  await expect(failed).rejects.toThrow('away');
  void cache.look('one');
  expect(reads).toHaveLength(4);
});

test('a write does not go through all ports that are kept', async () => {
  const timeWith = async (ports: number) => {
    using cache = new LookCache({ ...slowSource().source, isDaemon: async () => false });
    for (let port = 1; port <= ports; port++) await cache.isDaemon('10.0.0.1', port);
    const before = process.threadCpuUsage();
    for (let count = 0; count < 10_000; count++) cache.forgetPort(65_000);
    return process.threadCpuUsage(before).user;
  };
  const few = Math.max(2000, await timeWith(1));
  // A walk through all of them takes hundreds of times as long.
  expect(await timeWith(20_000)).toBeLessThan(50 * few);
});

test.each<[string, number, RecordSource['beat']]>([
  ['half a second, while the server does not reply', 500, () => new Promise(() => {})],
  ['ten seconds, while it does', 10_000, async () => {}],
])('a record counts for %s', async (_, forMs, beat) => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'hrtime'] });
  onTestFinished(() => void vi.useRealTimers());
  const { source, reads } = slowSource();
  using cache = new LookCache({ ...source, beat });
  const first = cache.look('one');
  reads[0]?.resolve(look(1));
  await first;
  for (let passed = 100; passed < forMs; passed += 100) {
    await vi.advanceTimersByTimeAsync(100);
    await cache.look('one');
  }
  expect(reads).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(100);
  void cache.look('one');
  expect(reads).toHaveLength(2);
});
