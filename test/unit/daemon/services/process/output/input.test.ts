import { Duplex, Writable } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Input } from '../../../../../../src/daemon/services/process/output/input.ts';

/** The size of the input queue: docs/operating.md. */
const QUEUE_BYTES = 1024 * 1024;

const never = new AbortController().signal;

/** A pipe whose reader takes one write at a time, when the test says so. */
class Pipe extends Writable {
  readonly taken: Buffer[] = [];
  #next: (() => void) | null = null;

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.taken.push(chunk);
    this.#next = done;
  }

  /** The program reads what was written last. */
  async take(): Promise<void> {
    const next = this.#next;
    this.#next = null;
    next?.();
    await turn();
  }

  async takeAll(): Promise<void> {
    while (this.#next) await this.take();
  }
}

function setUp() {
  const pipe = new Pipe();
  const ends = { count: 0 };
  const end = () => {
    ends.count += 1;
    pipe.end();
  };
  const input = new Input({ open: () => pipe, end }, 'stdin of process 7');
  return { pipe, input, ends };
}

const settled = async (promise: Promise<void>) => {
  const state = { done: false };
  promise.then(
    () => (state.done = true),
    () => (state.done = true),
  );
  await turn();
  return state.done;
};

test('writes are acknowledged while the queue has room, and later ones wait for it', async () => {
  const { pipe, input } = setUp();
  await input.write(Buffer.alloc(QUEUE_BYTES), never);
  const waiting = input.write(Buffer.from('next'), never);
  expect(await settled(waiting)).toBe(false);
  await pipe.take();
  await waiting;
  await pipe.takeAll();
  expect(String(pipe.taken.at(-1))).toBe('next');
});

test('the pipe holds no more than the queue and one write', async () => {
  const { pipe, input } = setUp();
  const block = Buffer.alloc(64 * 1024);
  for (let count = 0; count < 200; count++) void input.write(block, never).catch(() => {});
  await turn();
  expect(pipe.writableLength).toBe(QUEUE_BYTES);
});

test('the order of calls is kept, whichever wait or are aborted', async () => {
  const calls = fc.array(
    fc.record({ size: fc.nat(QUEUE_BYTES / 2), reads: fc.nat(2), givesUp: fc.boolean() }),
    { maxLength: 25 },
  );
  await fc.assert(
    fc.asyncProperty(calls, async (all) => {
      const { pipe, input } = setUp();
      const accepted: number[] = [];
      const writes = all.map(async ({ size, reads, givesUp }, number) => {
        const caller = new AbortController();
        const block = Buffer.alloc(size + 4);
        block.writeUInt32BE(number);
        const write = input.write(block, caller.signal).then(
          () => accepted.push(number),
          () => {},
        );
        if (givesUp) caller.abort(new Error('gone'));
        for (let count = 0; count < reads; count++) await pipe.take();
        return write;
      });
      await turn();
      await pipe.takeAll();
      await Promise.all(writes);
      // Of two writes that are accepted in one turn, either may be acknowledged first.
      expect(pipe.taken.map((block) => block.readUInt32BE())).toEqual(accepted.toSorted((a, b) => a - b));
      for (const [number, { givesUp }] of all.entries()) if (!givesUp) expect(accepted).toContain(number);
    }),
    { numRuns: 50 },
  );
});

test('an aborted write is not written', async () => {
  const { pipe, input } = setUp();
  await input.write(Buffer.alloc(QUEUE_BYTES), never);
  const caller = new AbortController();
  const given = input.write(Buffer.from('given up'), caller.signal);
  const kept = input.write(Buffer.from('kept'), never);
  caller.abort(new Error('gone'));
  await expect(given).rejects.toThrow('gone');
  await pipe.take();
  await kept;
  await pipe.takeAll();
  expect(pipe.taken.map(String).slice(1)).toEqual(['kept']);
});

test('close refuses waiting and later writes, and ends after accepted ones', async () => {
  const { pipe, input, ends } = setUp();
  await input.write(Buffer.alloc(QUEUE_BYTES), never);
  const waiting = input.write(Buffer.from('waiting'), never);
  input.close();
  input.close();
  const refusal = { kind: 'failed_precondition', message: 'stdin of process 7 is closed' };
  await expect(waiting).rejects.toMatchObject(refusal);
  await expect(input.write(Buffer.from('late'), never)).rejects.toMatchObject(refusal);
  await pipe.takeAll();
  expect(pipe.taken).toHaveLength(1);
  expect(pipe.writableFinished).toBe(true);
  expect(ends.count).toBe(1);
});

test('writes are refused after the program has closed its input', async () => {
  const pipe = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done(new Error('EPIPE')) });
  const input = new Input({ open: () => pipe, end: () => {} }, 'stdin of process 7');
  for (const text of ['a', 'b'])
    await expect(input.write(Buffer.from(text), never)).rejects.toThrow('stdin of process 7 is closed');
});

test('a write with an aborted signal is refused', async () => {
  const { input, pipe } = setUp();
  const gone = AbortSignal.abort(new Error('gone'));
  expect(() => input.write(Buffer.from('a'), gone)).toThrow('gone');
  expect(pipe.writableLength).toBe(0);
});
