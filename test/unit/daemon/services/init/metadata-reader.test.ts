import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { EnvdError } from '../../../../../src/base/errors.ts';
import type { SandboxMetadata } from '../../../../../src/daemon/services/init/metadata.ts';
import {
  MetadataReader,
  type MetadataReaderOptions,
} from '../../../../../src/daemon/services/init/metadata-reader.ts';

const METADATA: SandboxMetadata = {
  sandboxID: 'box',
  templateID: null,
  accessTokenHash: null,
  address: null,
};
const NEVER = new AbortController().signal;

/** A reader whose readings the test answers. */
function setUp(isOptional = false, firstMs: number | null = null) {
  const readings: (PromiseWithResolvers<SandboxMetadata> & { signal: AbortSignal })[] = [];
  const told: unknown[] = [];
  const options: MetadataReaderOptions = {
    isOptional,
    read(signal) {
      const reading = { ...Promise.withResolvers<SandboxMetadata>(), signal };
      signal.addEventListener('abort', () => reading.reject(signal.reason));
      readings.push(reading);
      return reading.promise;
    },
    onRead: async (metadata) => void told.push(metadata),
    onFailure: (error) => void told.push(error),
  };
  const reader = new MetadataReader(options, firstMs);
  onTestFinished(() => reader[Symbol.dispose]());
  const isBox = (gone = NEVER) => reader.check(({ sandboxID }) => sandboxID === 'box', gone);
  return { reader, readings, told, isBox };
}

test('the first read in the background waits, and a call does not', async () => {
  const { readings, isBox } = setUp(false, 60_000);
  expect(readings).toHaveLength(0);
  const answer = isBox();
  await expect.poll(() => readings).toHaveLength(1);
  readings[0]?.resolve(METADATA);
  expect(await answer).toBe(true);
});

test('the first read in the background comes by itself', async () => {
  const { readings } = setUp(false, 1);
  expect(readings).toHaveLength(0);
  await expect.poll(() => readings).toHaveLength(1);
});

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

  /** The numbers of reads after these times, in milliseconds, each after the one before, of a service that answers or not. */
  async function countReads(isOptional: boolean, answers: () => boolean, ...passed: number[]) {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    let count = 0;
    using reader = new MetadataReader({
      isOptional,
      read: async () => {
        count++;
        if (!answers()) throw new Error('ENETUNREACH');
        return METADATA;
      },
      onRead: async () => {},
      onFailure: () => {},
    });
    const counts: number[] = [];
    for (const ms of passed) {
      // A negative time: a pause begins then.
      if (ms < 0) reader.forget();
      await vi.advanceTimersByTimeAsync(Math.abs(ms));
      counts.push(count);
    }
    return counts;
  }

  test('reads again at intervals, which begin anew with a pause', async () => {
    const counts = await countReads(false, () => true, 29_999, 1, 29_999, -29_999, 1);
    expect(counts).toEqual([1, 2, 2, 2, 3]);
  });

  test('reads again after failures up to 5 s apart, and 30 s where there may be no service', async () => {
    const day = [60_000, 300_000] as const;
    // 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3… and 0, 0.1, … 25.5, 51.1, 81.1… seconds after the start.
    expect(await countReads(false, () => false, ...day)).toEqual([17, 77]);
    expect(await countReads(true, () => false, ...day)).toEqual([10, 20]);
  });

  test('where there may be no service, one that has answered is missed after 5 s', async () => {
    let isThere = true;
    const answers = () => isThere;
    const counts = countReads(true, answers, 30_000, 60_000);
    isThere = false;
    expect(await counts).toEqual([2, 18]);
  });

  test('ends with the reader, also during a reading', async () => {
    const { reader, readings, told } = setUp();
    reader[Symbol.dispose]();
    await expect(readings[0]?.promise).rejects.toThrow();
    await pastNextAttempt();
    expect([readings.length, told]).toEqual([1, []]);
  });
});

describe('a check', () => {
  test('is refused only by what was read after it', async () => {
    const { readings, isBox, told } = setUp();
    const other = { ...METADATA, sandboxID: 'other' };
    // The reading in the background started before the call.
    const check = isBox();
    readings[0]?.resolve(other);
    await expect.poll(() => told).toEqual([other]);
    readings[1]?.resolve(METADATA);
    expect(await check).toBe(true);
    const next = isBox();
    expect(await next).toBe(true);
    expect(readings.length).toBe(2);
  });

  test('is refused', async () => {
    const { readings, isBox } = setUp();
    const check = isBox();
    readings[1]?.resolve({ ...METADATA, sandboxID: null });
    expect(await check).toBe(false);
  });

  test('after a caller has gone is decided by the reading that was begun for it', async () => {
    const { readings, isBox } = setUp();
    for (let i = 0; i < 5; i++) {
      const gone = new AbortController();
      const check = isBox(gone.signal);
      gone.abort(new EnvdError('aborted', 'client disconnected'));
      await expect(check).rejects.toMatchObject({ kind: 'aborted' });
    }
    expect(readings.length).toBe(2);
    readings[1]?.resolve(METADATA);
    await readings[1]?.promise;
    expect(await isBox()).toBe(true);
    expect(readings.length).toBe(2);
  });

  test('is not decided by what was read, or begun, before a pause', async () => {
    const { reader, readings, isBox, told } = setUp();
    readings[0]?.resolve(METADATA);
    await expect.poll(() => told).toEqual([METADATA]);
    reader.refresh();
    reader.forget();
    const check = isBox();
    readings[1]?.resolve(METADATA);
    readings[2]?.resolve({ ...METADATA, sandboxID: null });
    expect(await check).toBe(false);
  });

  test('reads again at intervals, also while the first reading gets no response', async () => {
    const { readings, isBox } = setUp();
    const check = isBox();
    await expect.poll(() => readings.length).toBe(4);
    readings[3]?.resolve(METADATA);
    expect(await check).toBe(true);
  });

  test('fails after a second', async () => {
    const { readings, isBox } = setUp();
    const started = performance.now();
    await expect(isBox()).rejects.toMatchObject({
      kind: 'unavailable',
      message: 'metadata service did not answer within 1000 ms',
    });
    expect(performance.now() - started).toBeGreaterThanOrEqual(995);
    // One is given long enough for a slow service.
    expect(readings[1]?.signal.aborted).toBe(false);
    expect(readings.length).toBeLessThan(30);
  });

  test('fails with the reason of the last attempt', async () => {
    const reason = new Error('refused');
    const reader = new MetadataReader({
      isOptional: false,
      read: () => Promise.reject(reason),
      onRead: async () => {},
      onFailure: () => {},
    });
    onTestFinished(() => reader[Symbol.dispose]());
    await expect(reader.check(() => true, NEVER)).rejects.toBe(reason);
  });

  test('of which 64 wait: a further one takes the place of the oldest, and all share the readings', async () => {
    const { readings, isBox } = setUp();
    const checks = Array.from({ length: 65 }, () => isBox());
    await expect(checks[0]).rejects.toMatchObject({ kind: 'unavailable' });
    expect(readings.length).toBe(2);
    readings[1]?.resolve(METADATA);
    expect(await Promise.all(checks.slice(1))).toEqual(Array(64).fill(true));
  });

  test('ends with the reader', async () => {
    const { reader, isBox } = setUp();
    const check = expect(isBox()).rejects.toMatchObject({ kind: 'unavailable' });
    reader[Symbol.dispose]();
    await check;
  });
});

describe('where there may be no service', () => {
  test('one that is silent counts as none after 25 ms, and one that cannot be reached at once', async () => {
    const { readings, reader } = setUp(true);
    const hasNoHash = () => reader.check(({ accessTokenHash }) => accessTokenHash === null, NEVER);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const answers: boolean[] = [];
    void hasNoHash().then((answer) => answers.push(answer));
    await vi.advanceTimersByTimeAsync(24);
    expect(answers).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(answers).toEqual([true]);
    const check = hasNoHash();
    for (const { reject } of readings) reject(new Error('ENETUNREACH'));
    expect(await check).toBe(true);
  });

  test('one that has answered is waited for', async () => {
    const { readings, reader, told } = setUp(true);
    readings[0]?.resolve({ ...METADATA, accessTokenHash: 'aa' });
    await expect.poll(() => told.length).toBe(1);
    const check = reader.check(({ accessTokenHash }) => accessTokenHash === null, NEVER);
    await expect(check).rejects.toMatchObject({ kind: 'unavailable' });
  });

  test('one that answers in time decides', async () => {
    const { readings, isBox } = setUp(true);
    const check = isBox();
    readings[1]?.resolve({ ...METADATA, sandboxID: 'other' });
    expect(await check).toBe(false);
  });
});
