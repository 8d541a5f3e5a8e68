import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { type Metadata, MetadataReader } from '../../../../../src/daemon/services/init/metadata.ts';

const METADATA: Metadata = { sandboxID: 'box', templateID: null, accessTokenHash: null };

/** A reader whose readings the test answers. */
function setUp() {
  const readings: (PromiseWithResolvers<Metadata> & { signal: AbortSignal })[] = [];
  const told: unknown[] = [];
  const reader = new MetadataReader({
    read(signal) {
      const reading = { ...Promise.withResolvers<Metadata>(), signal };
      signal.addEventListener('abort', () => reading.reject(signal.reason));
      readings.push(reading);
      return reading.promise;
    },
    onRead: async (metadata) => void told.push(metadata),
    onFailure: (error) => void told.push(error),
  });
  onTestFinished(() => reader[Symbol.dispose]());
  return { reader, readings, told };
}

/** Longer than the third attempt would take to start, 400 ms: no event tells that it did not. */
const pastNextAttempt = () => new Promise((resolve) => setTimeout(resolve, 450));

describe('in the background', () => {
  test('reads until it succeeds, and reports a failure once', async () => {
    const { readings, told } = setUp();
    const failure = new Error('not there yet');
    readings[0]?.reject(failure);
    await expect.poll(() => readings.length).toBe(2);
    readings[1]?.reject(new Error('still not there'));
    await expect.poll(() => readings.length).toBe(3);
    readings[2]?.resolve(METADATA);
    await expect.poll(() => told).toEqual([failure, METADATA]);
    await pastNextAttempt();
    expect(readings.length).toBe(3);
  });

  test('reads again at intervals', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    // A fresh module, which uses the fake timers.
    vi.resetModules();
    vi.doMock('node:timers/promises', () => ({
      setTimeout: (ms: number) => new Promise((resolve) => setTimeout(resolve, ms)),
    }));
    onTestFinished(() => void vi.doUnmock('node:timers/promises'));
    const fresh = await import('../../../../../src/daemon/services/init/metadata.ts');
    let count = 0;
    const reader = new fresh.MetadataReader({
      read: async () => {
        count++;
        return METADATA;
      },
      onRead: async () => {},
      onFailure: () => {},
    });
    await vi.advanceTimersByTimeAsync(29_999);
    expect(count).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(count).toBe(2);
    reader[Symbol.dispose]();
  });

  test('ends with the reader, also during a reading', async () => {
    const { reader, readings, told } = setUp();
    reader[Symbol.dispose]();
    await expect(readings[0]?.promise).rejects.toThrow();
    await pastNextAttempt();
    expect([readings.length, told]).toEqual([1, []]);
  });
});

describe('a fresh reading', () => {
  test('starts after the call', async () => {
    const { reader, readings, told } = setUp();
    const before = process.hrtime.bigint();
    // The reading in the background started before the call.
    const fresh = reader.fresh(0n);
    readings[0]?.resolve({ ...METADATA, sandboxID: 'old' });
    readings[1]?.resolve(METADATA);
    expect(await fresh).toEqual(METADATA);
    expect(told).toEqual([{ ...METADATA, sandboxID: 'old' }, METADATA]);
    expect(await reader.fresh(process.hrtime.bigint() - before)).toEqual(METADATA);
    expect(readings.length).toBe(2);
  });

  test('is repeated until it succeeds', async () => {
    const { reader, readings } = setUp();
    const fresh = reader.fresh(0n);
    readings[1]?.reject(new Error('not yet'));
    await expect.poll(() => readings.length).toBe(3);
    readings[2]?.resolve(METADATA);
    expect(await fresh).toEqual(METADATA);
  });

  test('is cancelled after a second', async () => {
    const { reader, readings } = setUp();
    const started = performance.now();
    await expect(reader.fresh(0n)).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'metadata service did not answer within 1000 ms',
    });
    expect(performance.now() - started).toBeGreaterThanOrEqual(995);
    expect(readings[1]?.signal.aborted).toBe(true);
  });

  test('fails with the reason of the last attempt', async () => {
    const reason = new Error('refused');
    const reader = new MetadataReader({
      read: () => Promise.reject(reason),
      onRead: async () => {},
      onFailure: () => {},
    });
    onTestFinished(() => reader[Symbol.dispose]());
    await expect(reader.fresh(0n)).rejects.toBe(reason);
  });

  test('ends with the reader', async () => {
    const { reader } = setUp();
    const fresh = expect(reader.fresh(0n)).rejects.toMatchObject({ kind: 'unavailable' });
    reader[Symbol.dispose]();
    await fresh;
  });
});
