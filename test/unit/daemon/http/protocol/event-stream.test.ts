import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { onAbort } from '../../../../../src/base/abort.ts';
import { EnvdError } from '../../../../../src/base/errors.ts';
import type { Feed, Taken } from '../../../../../src/base/feed.ts';
import type { CallScope } from '../../../../../src/daemon/http/admission/call-scope.ts';
import { EventBatches } from '../../../../../src/daemon/http/protocol/event-stream.ts';

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
  /** What is there without waiting. */
  readonly queued: Taken<string>[] = [];
  #next = Promise.withResolvers<Taken<string>>();

  next(): Taken<string> | Promise<Taken<string>> {
    this.calls += 1;
    const [first] = this.queued;
    if (first !== undefined) {
      this.queued.shift();
      return first;
    }
    this.#next = Promise.withResolvers();
    return this.#next.promise;
  }

  tell(events: Taken<string>): void {
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

/** As much of a call as the batches use, with a keepalive after a second. */
function callOf(signal: AbortSignal): CallScope {
  const headers = { 'keepalive-ping-interval': '1' };
  const pending = () => {
    const pending = Promise.withResolvers<unknown>();
    onAbort(signal, () => pending.reject(signal.reason));
    return pending;
  };
  return {
    request: { headers },
    pending,
    throwIfAborted: () => signal.throwIfAborted(),
  } as unknown as CallScope;
}

function setUp() {
  const feed = new ToldFeed();
  const caller = new AbortController();
  const batches = new EventBatches(feed, callOf(caller.signal), () => 1024);
  return { feed, caller, batches };
}

test('forwards batches until the feed ends', async () => {
  const { feed, batches } = setUp();
  const first = batches.next();
  feed.tell(['a', 'b']);
  expect(await first).toEqual(['a', 'b']);
  const second = batches.next();
  expect(feed.calls).toBe(2);
  feed.tell(null);
  expect(await second).toBeNull();
  batches[Symbol.dispose]();
  expect(feed.disposed).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
});

test('what is there is taken without waiting, and without a timer', () => {
  const { feed, batches } = setUp();
  feed.queued.push(['a'], null);
  expect(batches.next()).toEqual(['a']);
  expect(batches.next()).toBeNull();
  expect(vi.getTimerCount()).toBe(0);
});

test('asks for a keepalive after each interval without events', async () => {
  const { feed, batches } = setUp();
  const late = batches.next();
  vi.advanceTimersByTime(999);
  feed.tell(['a']);
  expect(await late).toEqual(['a']);
  for (let count = 0; count < 3; count++) {
    const next = batches.next();
    vi.advanceTimersByTime(1000);
    expect(await next).toBe('late');
  }
  expect(feed.calls).toBe(2);
  const last = batches.next();
  feed.tell(['b']);
  expect(await last).toEqual(['b']);
});

test('an abort ends a wait with its reason', async () => {
  const { feed, caller, batches } = setUp();
  const next = batches.next();
  caller.abort(new EnvdError('aborted', 'client disconnected'));
  await expect(next).rejects.toThrow('client disconnected');
  batches[Symbol.dispose]();
  expect(feed.disposed).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
});

test('an abort between two waits is noticed by the next one', async () => {
  const { feed, caller, batches } = setUp();
  const first = batches.next();
  feed.tell(['a']);
  await first;
  caller.abort(new EnvdError('aborted', 'client disconnected'));
  expect(() => batches.next()).toThrow('client disconnected');
});

test('the error of a feed is thrown', async () => {
  const { feed, batches } = setUp();
  const next = batches.next();
  feed.fail(new EnvdError('resource_exhausted', 'reader dropped'));
  await expect(next).rejects.toThrow('reader dropped');
});

test('an error of the feed after the abort is ignored', async () => {
  const { feed, caller, batches } = setUp();
  const next = batches.next();
  caller.abort(new Error('gone'));
  feed.fail(new Error('late'));
  await expect(next).rejects.toThrow('gone');
});
