import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { untilAborted } from '../../../../src/base/abort.ts';
import { EnvdError } from '../../../../src/base/errors.ts';
import type { Feed } from '../../../../src/base/feed.ts';
import { batches } from '../../../../src/daemon/rpc/event-stream.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** A feed whose batches the test supplies. */
class ToldFeed implements Feed<string> {
  disposed = false;
  calls = 0;
  #next = Promise.withResolvers<readonly string[] | null>();

  next(): Promise<readonly string[] | null> {
    this.calls += 1;
    this.#next = Promise.withResolvers();
    return this.#next.promise;
  }

  tell(events: readonly string[] | null): void {
    this.#next.resolve(events);
  }

  fail(error: Error): void {
    this.#next.reject(error);
  }

  [Symbol.dispose](): void {
    this.disposed = true;
    this.#next.resolve(null);
  }
}

function setUp() {
  const feed = new ToldFeed();
  const caller = new AbortController();
  return {
    feed,
    caller,
    stream: batches(feed, {
      keepaliveMs: 1000,
      batchBytes: () => 1024,
      race: (work) => untilAborted(work, caller.signal),
    }),
  };
}

test('forwards batches until the feed ends', async () => {
  const { feed, stream } = setUp();
  const first = stream.next();
  feed.tell(['a', 'b']);
  expect((await first).value).toEqual(['a', 'b']);
  const second = stream.next();
  await vi.waitFor(() => expect(feed.calls).toBe(2));
  feed.tell(null);
  expect((await second).done).toBe(true);
  expect(feed.disposed).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
});

test('sends a keepalive after each interval without events', async () => {
  const { feed, stream } = setUp();
  const late = stream.next();
  vi.advanceTimersByTime(999);
  feed.tell(['a']);
  expect((await late).value).toEqual(['a']);
  for (let count = 0; count < 3; count++) {
    const next = stream.next();
    await vi.waitFor(() => expect(vi.getTimerCount()).toBe(1));
    vi.advanceTimersByTime(1000);
    expect((await next).value).toBeNull();
  }
  expect(feed.calls).toBe(2);
  const last = stream.next();
  feed.tell(['b']);
  expect((await last).value).toEqual(['b']);
  await stream.return(undefined);
});

test('ends with the abort reason and disposes of the feed', async () => {
  const { feed, caller, stream } = setUp();
  const next = stream.next();
  caller.abort(new EnvdError('aborted', 'client disconnected'));
  await expect(next).rejects.toThrow('client disconnected');
  expect(feed.disposed).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
});

test('an abort between two waits is noticed by the next one', async () => {
  const { feed, caller, stream } = setUp();
  const first = stream.next();
  feed.tell(['a']);
  await first;
  caller.abort(new EnvdError('aborted', 'client disconnected'));
  await expect(stream.next()).rejects.toThrow('client disconnected');
  expect(feed.disposed).toBe(true);
});

test('a failing feed is disposed of, and its error is thrown', async () => {
  const { feed, stream } = setUp();
  const next = stream.next();
  feed.fail(new EnvdError('resource_exhausted', 'reader dropped'));
  await expect(next).rejects.toThrow('reader dropped');
  expect(feed.disposed).toBe(true);
});

test('an error of the feed after the abort is ignored', async () => {
  const { feed, caller, stream } = setUp();
  const next = stream.next();
  caller.abort(new Error('gone'));
  feed.fail(new Error('late'));
  await expect(next).rejects.toThrow('gone');
});
