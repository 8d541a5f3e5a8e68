import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { DeadlineFeed, killAfter } from '../../../../../src/daemon/services/process/deadline.ts';
import type { ManagedProcess } from '../../../../../src/daemon/services/process/lifecycle/process.ts';
import type {
  EndEvent,
  EndReason,
  ProcessEvent,
} from '../../../../../src/daemon/services/process/output/events.ts';
import { Output } from '../../../../../src/daemon/services/process/output/output.ts';
import { historyOf } from '../../../../support/services/history.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** The part of a process that the deadline uses. */
function setUp() {
  const output = new Output(() => {}, historyOf(0));
  const ended = Promise.withResolvers<EndEvent>();
  const process = {
    ended: ended.promise,
    expire: vi.fn(() => {
      reason = 'deadline';
    }),
  };
  let reason: EndReason = 'exited';
  const end = () => {
    const event = { type: 'end', reason } as EndEvent;
    output.end(event);
    ended.resolve(event);
  };
  killAfter(process as unknown as ManagedProcess, 1000);
  const feed = new DeadlineFeed(output.read(7, null), 1000);
  return { output, process, feed, end };
}

const types = (events: readonly ProcessEvent[] | null) => events?.map(({ type }) => type);

test('forwards everything and stops the timer when the process ends in time', async () => {
  const { output, process, feed, end } = setUp();
  await feed.next();
  output.write('stdout', Buffer.from('a'));
  end();
  expect(types(await feed.next())).toEqual(['output', 'end']);
  expect(await feed.next()).toBeNull();
  await process.ended;
  expect(vi.getTimerCount()).toBe(0);
  vi.advanceTimersByTime(2000);
  expect(process.expire).not.toHaveBeenCalled();
});

test('kills the process at the deadline, and throws after the output', async () => {
  const { output, process, feed, end } = setUp();
  await feed.next();
  vi.advanceTimersByTime(999);
  expect(process.expire).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(process.expire).toHaveBeenCalledOnce();
  output.write('stdout', Buffer.from('last words'));
  end();
  expect(types(await feed.next())).toEqual(['output']);
  const error = { kind: 'deadline_exceeded', message: 'process was killed after 1000 ms' };
  await expect(async () => feed.next()).rejects.toMatchObject(error);
  await expect(async () => feed.next()).rejects.toMatchObject(error);
});

test('throws also when there is no output', async () => {
  const { feed, end } = setUp();
  await feed.next();
  vi.advanceTimersByTime(1000);
  end();
  await expect(async () => feed.next()).rejects.toMatchObject({ kind: 'deadline_exceeded' });
});

test('kills the process also after the client has disconnected', async () => {
  const { feed, process } = setUp();
  await feed.next();
  feed[Symbol.dispose]();
  vi.advanceTimersByTime(1000);
  expect(process.expire).toHaveBeenCalledOnce();
});
