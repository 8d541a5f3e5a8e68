import { execFileSync } from 'node:child_process';
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, onTestFinished, test } from 'vitest';
import { InputQueue } from '../../../../../src/daemon/linux/processes/input-queue.ts';
import { scratch } from '../../../../support/machine/scratch.ts';

/** The size of the input queue: docs/operating.md. */
const QUEUE_BYTES = 1024 * 1024;
/** More than a pipe holds. */
const PIPE_BYTES = 64 * 1024;

const never = new AbortController().signal;

/** A queue in front of a pipe, and the program that reads it when the test says so. */
function setUp() {
  const path = join(scratch(), 'pipe');
  execFileSync('mkfifo', [path]);
  const reading = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const descriptor = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  const input = new InputQueue(descriptor, true, null);
  const open = { isReading: true };
  const leave = () => {
    if (open.isReading) closeSync(reading);
    open.isReading = false;
  };
  onTestFinished(() => {
    input.destroy();
    leave();
  });
  const parts: Buffer[] = [];
  /** Reads what is in the pipe. */
  const read = () => {
    const room = Buffer.alloc(PIPE_BYTES);
    try {
      parts.push(Buffer.from(room.subarray(0, readSync(reading, room))));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
    }
  };
  const got = () => Buffer.concat(parts);
  const readAll = async (bytes: number) => {
    while (got().length < bytes) {
      read();
      await turn();
    }
    return got();
  };
  return { input, descriptor, leave, read, readAll, got };
}

const settled = async (promise: Promise<unknown>) => {
  const state = { done: false };
  promise.then(
    () => (state.done = true),
    () => (state.done = true),
  );
  await turn();
  return state.done;
};

test('writes are accepted while the queue has room, and later ones wait for it', async () => {
  const { input, readAll } = setUp();
  const first = QUEUE_BYTES;
  expect(await input.write(Buffer.alloc(first), never)).toBe(true);
  const waiting = input.write(Buffer.from('next'), never);
  expect(await settled(waiting)).toBe(false);
  expect(String((await readAll(first + 4)).subarray(first))).toBe('next');
  expect(await waiting).toBe(true);
});

test('the queue holds no more than its size and one write', async () => {
  const { input } = setUp();
  const block = Buffer.alloc(64 * 1024);
  const writes = Array.from({ length: 200 }, () => input.write(block, never));
  await turn();
  expect(input.unwritten.length).toBeLessThan(QUEUE_BYTES + block.length);
  input.end();
  expect((await Promise.all(writes)).filter(Boolean).length).toBeLessThan(20);
});

/** Bytes of which no part is like another. */
const long = Buffer.from(Uint32Array.from({ length: (5 * QUEUE_BYTES) / 4 }, (_, index) => index).buffer);

test('a write that is longer than the queue waits for the program, too, and later ones wait behind it', async () => {
  const { input, readAll } = setUp();
  const writing = input.write(long, never);
  const next = input.write(Buffer.from('next'), never);
  expect(await settled(writing)).toBe(false);
  expect(input.unwritten.length).toBeLessThan(2 * QUEUE_BYTES);
  const wanted = Buffer.concat([long, Buffer.from('next')]);
  expect((await readAll(wanted.length)).equals(wanted)).toBe(true);
  expect(await Promise.all([writing, next])).toEqual([true, true]);
});

test('of a long write that is aborted, no more is written', async () => {
  const { input, read, readAll, got } = setUp();
  const caller = new AbortController();
  const writing = input.write(long, caller.signal);
  await readAll(100_000);
  const kept = input.write(Buffer.from('kept'), never);
  caller.abort(new Error('gone'));
  await expect(writing).rejects.toThrow('gone');
  void kept.then(() => input.end());
  for (; input.descriptor !== null; await turn()) read();
  for (let before = -1; got().length > before; read()) before = got().length;
  const written = got().subarray(0, -4);
  expect(written.equals(long.subarray(0, written.length))).toBe(true);
  expect(written.length).toBeLessThan(3 * QUEUE_BYTES);
  expect(String(got().subarray(-4))).toBe('kept');
});

test('the order of calls is kept, whichever wait or are aborted', async () => {
  const calls = fc.array(
    fc.record({ size: fc.nat(QUEUE_BYTES / 2), reads: fc.nat(2), givesUp: fc.boolean() }),
    { maxLength: 25 },
  );
  await fc.assert(
    fc.asyncProperty(calls, async (all) => {
      const { input, read, readAll, leave } = setUp();
      const accepted: number[] = [];
      const writes = all.map(async ({ size, reads, givesUp }, number) => {
        const caller = new AbortController();
        const block = Buffer.alloc(size + 4, number);
        const write = Promise.resolve(input.write(block, caller.signal)).then(
          () => accepted.push(number),
          () => {},
        );
        if (givesUp) caller.abort(new Error('gone'));
        for (let count = 0; count < reads; count++) read();
        return write;
      });
      const sizeOf = (number: number) => (all[number]?.size ?? 0) + 4;
      const state = { areSettled: false };
      void Promise.all(writes).then(() => {
        state.areSettled = true;
      });
      while (!state.areSettled || input.unwritten.length > 0) {
        read();
        await turn();
      }
      const wanted = accepted.toSorted((a, b) => a - b);
      const text = Buffer.concat(wanted.map((number) => Buffer.alloc(sizeOf(number), number)));
      expect((await readAll(text.length)).equals(text)).toBe(true);
      for (const [number, { givesUp }] of all.entries()) if (!givesUp) expect(accepted).toContain(number);
      input.destroy();
      leave();
    }),
    { numRuns: 50 },
  );
});

test('an aborted write is not written', async () => {
  const { input, readAll } = setUp();
  const first = QUEUE_BYTES;
  await input.write(Buffer.alloc(first), never);
  const caller = new AbortController();
  const given = input.write(Buffer.from('given up'), caller.signal);
  const kept = input.write(Buffer.from('kept'), never);
  caller.abort(new Error('gone'));
  await expect(given).rejects.toThrow('gone');
  expect(String((await readAll(first + 4)).subarray(first))).toBe('kept');
  expect(await kept).toBe(true);
  expect(() => input.write(Buffer.from('a'), caller.signal)).toThrow('gone');
});

test('its end refuses waiting and later writes, and follows accepted ones', async () => {
  const { input, descriptor, readAll } = setUp();
  const first = QUEUE_BYTES;
  await input.write(Buffer.alloc(first), never);
  const waiting = input.write(Buffer.from('waiting'), never);
  input.end();
  input.end();
  expect(await waiting).toBe(false);
  expect(await input.write(Buffer.from('late'), never)).toBe(false);
  expect([input.isOpen, input.descriptor]).toEqual([false, descriptor]);
  expect((await readAll(first)).length).toBe(first);
  await input.closed;
  expect(input.descriptor).toBeNull();
  expect(() => fstatSync(descriptor)).toThrow('EBADF');
});

test('writes are refused after the program has closed its input, whether they wait or not', async () => {
  const { input, leave } = setUp();
  await input.write(Buffer.alloc(QUEUE_BYTES), never);
  const waiting = input.write(Buffer.from('waiting'), never);
  leave();
  expect(await waiting).toBe(false);
  const other = setUp();
  other.leave();
  for (const text of ['a', 'b']) expect(await other.input.write(Buffer.from(text), never)).toBe(false);
  await other.input.closed;
});

test('what the kernel has not taken is known', async () => {
  const { input, got, read } = setUp();
  const text = Buffer.from(Array.from({ length: 300_000 }, (_, index) => index % 251));
  for (let from = 0; from < text.length; from += 100_000)
    await input.write(text.subarray(from, from + 100_000), never);
  read();
  const left = input.unwritten;
  input.destroy();
  while (got().length + left.length < text.length) read();
  expect(Buffer.concat([got(), left]).equals(text)).toBe(true);
});

test('however fast it is read, a large input is written in several turns of the event loop', async () => {
  const sink = openSync('/dev/null', 'w');
  onTestFinished(() => closeSync(sink));
  const input = new InputQueue(sink, false, null);
  await input.write(Buffer.alloc(3 * 1024 * 1024), never);
  expect(input.unwritten.length).toBe(QUEUE_BYTES);
  input.end();
  await input.closed;
  expect(fstatSync(sink).isCharacterDevice()).toBe(true);
});
