import { expect, test } from 'vitest';
import type { ProcessEvent } from '../../../../../../src/daemon/services/process/output/events.ts';
import { type EventSource, Reader } from '../../../../../../src/daemon/services/process/output/reader.ts';
import { UnreadOutput } from '../../../../../../src/daemon/services/process/output/unread-output.ts';

const output = (text: string): ProcessEvent => ({
  type: 'output',
  stream: 'stdout',
  bytes: Buffer.from(text),
  offset: 0,
});

function setUp(before: readonly ProcessEvent[] = []) {
  const log = new UnreadOutput();
  const calls: string[] = [];
  const state = { ended: false };
  const source: EventSource = {
    get ended() {
      return state.ended;
    },
    advanced: () => calls.push('advanced'),
    stalled: () => calls.push('stalled'),
    remove: () => calls.push('removed'),
  };
  const reader = new Reader(source, log, before, { pid: 7, deadlineMs: null, windowBytes: 1 });
  const append = (event: ProcessEvent, cost: number) => {
    log.append(event, cost);
    reader.wake();
  };
  return { reader, state, calls, append };
}

test('yields its own events first, in one batch with those that are there', async () => {
  const own = [output('a'), output('b')];
  const { reader, append, calls } = setUp(own);
  append(output('c'), 1);
  expect(await reader.next()).toEqual([...own, output('c')]);
  expect(calls).toEqual(['advanced']);
});

test('waits for the next event', async () => {
  const { reader, append } = setUp();
  const next = reader.next();
  append(output('late'), 1);
  expect(await next).toEqual([output('late')]);
});

test('takes about 128 KiB at a time, and a larger event whole', async () => {
  const { reader, append } = setUp();
  append(output('large'), 10_000_000);
  for (let count = 0; count < 100; count++) append(output('x'), 4096);
  expect(await reader.next()).toHaveLength(1);
  expect(await reader.next()).toHaveLength(32);
  expect(reader.place).toEqual({ next: 33, position: 10_000_000 + 32 * 4096 });
});

test('a wake-up without events does not end the wait', async () => {
  const { reader, append } = setUp();
  const next = reader.next();
  reader.wake();
  reader.wake();
  append(output('a'), 1);
  expect(await next).toHaveLength(1);
});

test('ends with its source, after everything has been read', async () => {
  const { reader, state, append } = setUp();
  append(output('last'), 1);
  state.ended = true;
  expect(await reader.next()).toHaveLength(1);
  expect(await reader.next()).toBeNull();
});

test('dispose ends the wait, and removes the reader from its source', async () => {
  const { reader, calls, append } = setUp();
  const next = reader.next();
  reader[Symbol.dispose]();
  expect(await next).toBeNull();
  append(output('a'), 1);
  expect(await reader.next()).toBeNull();
  expect(calls).toEqual(['removed']);
});
