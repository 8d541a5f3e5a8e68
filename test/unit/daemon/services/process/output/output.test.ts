import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type {
  EndEvent,
  EndReason,
  ProcessEvent,
} from '../../../../../../src/daemon/services/process/output/events.ts';
import type { Reader } from '../../../../../../src/daemon/services/process/output/reader.ts';
import { historyOf, outputOf } from '../../../../../support/services/history.ts';

/** The limits of a slow reader, in bytes and in time: docs/operating.md. */
const WINDOW_BYTES = 1024 * 1024;
const STALL_LIMIT_MS = 30_000;

const END = { type: 'end' } as EndEvent;
const KIB = Buffer.alloc(1024, 'x');

/** A source that writes unless it is paused, and counts the pauses. */
function source(historyBytes = 0) {
  const state = { paused: false, pauses: 0, written: 0 };
  const output = outputOf(historyOf(historyBytes), (paused) => {
    state.paused = paused;
    if (paused) state.pauses += 1;
  });
  const fill = (atMost: number) => {
    for (let count = 0; count < atMost && !state.paused; count++, state.written++)
      output.write('stdout', KIB);
  };
  return { output, state, fill };
}

const texts = (events: readonly ProcessEvent[] | null) =>
  events?.map((event) => (event.type === 'output' ? String(event.bytes) : event.type));

/** Reads until the source has ended and the log is empty. */
async function readOutput(reader: Reader, wanted: number): Promise<number> {
  let bytes = 0;
  while (bytes < wanted) {
    for (const event of (await reader.next()) ?? []) if (event.type === 'output') bytes += event.bytes.length;
  }
  return bytes;
}

describe('a reader', () => {
  test('gets the start, everything from then on in order, and the end', async () => {
    const { output } = source();
    output.write('stdout', Buffer.from('missed'));
    const reader = output.read(7, null);
    output.write('stdout', Buffer.from('one'));
    output.write('stderr', Buffer.from('two'));
    output.end(END);
    expect(texts(await reader.next())).toEqual(['start', 'one', 'two', 'end']);
    expect(await reader.next()).toBeNull();
  });

  test('at the same position as another one gets the same array', async () => {
    const { output } = source();
    const readers = [output.read(7, null), output.read(7, null)] as const;
    for (const reader of readers) await reader.next();
    output.write('stdout', KIB);
    const [first, second] = await Promise.all(readers.map((reader) => reader.next()));
    expect(first).toHaveLength(1);
    expect(second).toBe(first);
  });

  test('that comes after the end gets the start and the end', async () => {
    const { output, fill } = source(10_000);
    fill(100);
    output.end(END);
    const reader = output.read(7, null);
    expect(texts(await reader.next())).toEqual(['start', 'end']);
    expect(await reader.next()).toBeNull();
  });
});

describe('a reader with a deadline', () => {
  const ended = (reason: EndReason) => ({ type: 'end', reason }) as EndEvent;
  const error = { kind: 'deadline_exceeded', message: 'process was killed after 1000 ms' };

  test('gets the end of a process that ends in time, or that another deadline has not killed', async () => {
    const { output } = source();
    const readers = [output.read(7, null, 1000), output.read(7, null)] as const;
    output.write('stdout', Buffer.from('a'));
    output.end(ended('exited'));
    for (const reader of readers) {
      expect(texts(await reader.next())).toEqual(['start', 'a', 'end']);
      expect(await reader.next()).toBeNull();
    }
  });

  test('gets the output of a process that is killed at its deadline, then an error; others get the end', async () => {
    const { output } = source();
    const readers = [output.read(7, null, 1000), output.read(7, null)] as const;
    output.write('stdout', Buffer.from('last words'));
    output.end(ended('deadline'));
    expect(texts(await readers[0].next())).toEqual(['start', 'last words']);
    await expect(async () => readers[0].next()).rejects.toMatchObject(error);
    await expect(async () => readers[0].next()).rejects.toMatchObject(error);
    expect(texts(await readers[1].next())).toEqual(['start', 'last words', 'end']);
  });

  test('gets the error also when there is no output, and while it waits', async () => {
    const { output } = source();
    const reader = output.read(7, null, 1000);
    await reader.next();
    const next = Promise.resolve(reader.next());
    output.end(ended('deadline'));
    await expect(next).rejects.toMatchObject(error);
  });
});

describe('backpressure', () => {
  test('a source that was held goes on when it is released, unless a reader lags', async () => {
    const { output, state, fill } = source();
    output.hold();
    expect(state.paused).toBe(true);
    output.release();
    expect(state.paused).toBe(false);
    const reader = output.read(7, null);
    fill(10_000);
    expect(state.paused).toBe(true);
    output.hold();
    output.release();
    expect(state.paused).toBe(true);
    output.hold();
    await readOutput(reader, state.written * KIB.length);
    expect(state.paused).toBe(true);
    output.release();
    expect(state.paused).toBe(false);
  });

  test('has all of it unread until it has taken that, also after the end', async () => {
    const { output } = source();
    const early = output.read(7, null);
    output.end(END);
    expect(output.hasUnread).toBe(true);
    await early.next();
    expect(output.hasUnread).toBe(false);
    const late = output.read(7, null);
    expect(output.hasUnread).toBe(true);
    await late.next();
    expect(output.hasUnread).toBe(false);
  });

  test('the source is not paused without readers, and resumes when a reader has gone', async () => {
    const { output, state, fill } = source();
    fill(5000);
    expect(state).toMatchObject({ pauses: 0, written: 5000 });
    const reader = output.read(7, null);
    fill(5000);
    expect(state.paused).toBe(true);
    reader[Symbol.dispose]();
    expect(state.paused).toBe(false);
  });

  test('a slow reader pauses the source one window ahead, and resumes it by reading', async () => {
    const { output, state, fill } = source();
    const reader = output.read(7, null);
    await reader.next();
    fill(10_000);
    const ahead = state.written * (KIB.length + 256);
    expect(state.paused).toBe(true);
    expect(ahead).toBeGreaterThan(WINDOW_BYTES);
    expect(ahead).toBeLessThan(WINDOW_BYTES + 2000);
    expect((await reader.next())?.length).toBeGreaterThan(0);
    expect(state.paused).toBe(false);
    fill(10_000);
    expect(state.pauses).toBe(2);
  });

  test('tiny events count more than their bytes', () => {
    const { output, state } = source();
    output.read(7, null);
    let written = 0;
    for (; !state.paused; written++) output.write('stdout', Buffer.from('x'));
    expect(written).toBeLessThan(5000);
  });
});

describe('a stalled reader', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('is dropped after 30 s when there are others, who get everything', async () => {
    const { output, state, fill } = source();
    const stalled = output.read(7, null);
    const other = output.read(7, null);
    fill(10_000);
    await readOutput(other, state.written * KIB.length);
    expect(state.paused).toBe(true);

    vi.advanceTimersByTime(STALL_LIMIT_MS - 1);
    expect(state.paused).toBe(true);
    vi.advanceTimersByTime(1);
    expect(state.paused).toBe(false);
    await expect(async () => stalled.next()).rejects.toMatchObject({
      kind: 'resource_exhausted',
      message: 'reader dropped: it has not read for 30 s while others wait, connect again',
    });
    await expect(async () => stalled.next()).rejects.toThrow('reader dropped');
    const before = state.written;
    fill(500);
    expect(await readOutput(other, (state.written - before) * KIB.length)).toBe(500 * KIB.length);
  });

  test('is dropped also while it waits for its socket', async () => {
    const { output, fill } = source();
    const stalled = output.read(7, null);
    const other = output.read(7, null);
    await stalled.next();
    fill(10_000);
    void readOutput(other, Number.POSITIVE_INFINITY).catch(() => {});
    await turn();
    vi.advanceTimersByTime(STALL_LIMIT_MS);
    await expect(async () => stalled.next()).rejects.toMatchObject({ kind: 'resource_exhausted' });
  });

  test('is not dropped when it is alone', async () => {
    const { output, state, fill } = source();
    const reader = output.read(7, null);
    fill(10_000);
    vi.advanceTimersByTime(STALL_LIMIT_MS * 100);
    expect(state.paused).toBe(true);
    expect(await readOutput(reader, state.written * KIB.length)).toBe(state.written * KIB.length);
  });

  test('is not dropped when it reads before the time is up', async () => {
    const { output, fill } = source();
    const slow = output.read(7, null);
    const other = output.read(7, null);
    void readOutput(other, Number.POSITIVE_INFINITY).catch(() => {});
    await slow.next();
    for (let round = 0; round < 5; round++) {
      fill(10_000);
      await turn();
      vi.advanceTimersByTime(STALL_LIMIT_MS - 1);
      expect((await slow.next())?.length).toBeGreaterThan(0);
    }
  });

  test('holds up one that comes later, and is dropped for it', async () => {
    const { output, state, fill } = source();
    const stalled = output.read(7, null);
    fill(10_000);
    vi.advanceTimersByTime(STALL_LIMIT_MS);
    const late = output.read(7, null);
    expect(texts(await late.next())).toEqual(['start']);
    vi.advanceTimersByTime(STALL_LIMIT_MS);
    expect(state.paused).toBe(false);
    const before = state.written;
    fill(100);
    expect(await readOutput(late, 100 * KIB.length)).toBe((state.written - before) * KIB.length);
    await expect(async () => stalled.next()).rejects.toThrow('it has not read for 30 s');
  });

  test('is dropped as soon as its client is known to take nothing, if another one wants the output', async () => {
    const { output, state, fill } = source();
    const stalled = output.read(7, null);
    fill(10_000);
    stalled.stalled();
    expect(state.paused).toBe(true);
    const late = output.read(7, null);
    late.stalled();
    expect(state.paused).toBe(true);
    stalled.stalled();
    expect(state.paused).toBe(false);
    await expect(async () => stalled.next()).rejects.toMatchObject({
      kind: 'resource_exhausted',
      message: 'reader dropped: it has taken nothing for 5 s while others wait, connect again',
    });
    expect(texts(await late.next())).toEqual(['start']);
  });

  test('is not dropped for one that has stalled itself', () => {
    const { output, state, fill } = source();
    const readers = [output.read(7, null), output.read(7, null)];
    fill(10_000);
    for (const reader of readers) reader.stalled();
    vi.advanceTimersByTime(STALL_LIMIT_MS);
    expect(state.paused).toBe(true);
    output.read(7, null);
    for (const reader of readers) reader.stalled();
    expect(state.paused).toBe(false);
  });

  test('is not dropped while it lags by less than a window', async () => {
    const { output, fill } = source();
    const behind = output.read(7, null);
    await behind.next();
    fill(100);
    await output.read(7, null).next();
    behind.stalled();
    expect(texts(await behind.next())).toHaveLength(100);
  });

  test('leaves no timer when it is disposed of', () => {
    const { output, fill } = source();
    const readers = [output.read(7, null), output.read(7, null)];
    fill(10_000);
    output.read(7, null);
    expect(vi.getTimerCount()).toBe(2);
    for (const reader of readers) reader[Symbol.dispose]();
    expect(vi.getTimerCount()).toBe(0);
  });
});
