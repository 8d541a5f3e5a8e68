import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type {
  EndEvent,
  Offsets,
  OutputStream,
  ProcessEvent,
} from '../../../../../../src/daemon/services/process/output/events.ts';
import { History } from '../../../../../../src/daemon/services/process/output/history.ts';
import type { Output } from '../../../../../../src/daemon/services/process/output/output.ts';
import { OutputStore } from '../../../../../../src/daemon/services/process/output/output-store.ts';
import { historyOf, outputOf } from '../../../../../support/services/history.ts';

const STREAMS: readonly OutputStream[] = ['stdout', 'stderr', 'pty'];
const LIMIT = 4000;
const PIECE_BYTES = 256;

const writes = fc.array(
  fc.record({ stream: fc.constantFrom(...STREAMS), bytes: fc.uint8Array({ maxLength: 1500 }) }),
  { maxLength: 40 },
);
const shares = fc.tuple(...STREAMS.map(() => fc.double({ min: 0, max: 1, noNaN: true }))) as fc.Arbitrary<
  number[]
>;

interface Write {
  readonly stream: OutputStream;
  readonly bytes: Uint8Array;
}

const each = <T>(of: (stream: OutputStream) => T): Record<OutputStream, T> => ({
  stdout: of('stdout'),
  stderr: of('stderr'),
  pty: of('pty'),
});

const joined = (all: readonly Write[]) =>
  each((stream) => Buffer.concat(all.filter((one) => one.stream === stream).map(({ bytes }) => bytes)));

/** The least that is kept: the last writes that fit even when each is alone and its buffer has doubled. */
function keptAtLeast(all: readonly Write[]): Record<OutputStream, number> {
  let first = all.length;
  for (let cost = 0; first > 0; first--) {
    cost += 2 * (all[first - 1]?.bytes.length ?? 0) + PIECE_BYTES;
    if (cost > LIMIT) break;
  }
  const gone = joined(all.slice(0, first));
  return each((stream) => gone[stream].length);
}

async function resume(output: Output, from: Offsets): Promise<ProcessEvent[]> {
  return [...((await output.read(7, from).next()) ?? [])];
}

test('a resume yields exactly the bytes from the offsets on, or a gap for what is missing', async () => {
  await fc.assert(
    fc.asyncProperty(writes, shares, async (all, share) => {
      const history = historyOf(LIMIT);
      const output = outputOf(history);
      for (const { stream, bytes } of all) {
        output.write(stream, Buffer.from(bytes));
        expect(history.cost).toBeLessThanOrEqual(LIMIT);
      }
      const whole = joined(all);
      const kept = each((stream) => history.firstOffset(stream) ?? whole[stream].length);
      const atLeast = keptAtLeast(all);
      for (const stream of STREAMS) expect(kept[stream]).toBeLessThanOrEqual(atLeast[stream]);
      const asked = each((stream) =>
        Math.floor((share[STREAMS.indexOf(stream)] ?? 0) * whole[stream].length),
      );
      const begin = each((stream) => Math.max(asked[stream], kept[stream]));

      const [start, ...rest] = await resume(output, asked);
      expect(start).toEqual({ type: 'start', pid: 7, offsets: begin });
      const gone = STREAMS.some((stream) => begin[stream] > asked[stream]);
      const gap = rest[0]?.type === 'gap' ? rest.shift() : null;
      expect(gap).toEqual(gone ? { type: 'gap', from: asked, to: begin } : null);

      const told = rest.filter((event) => event.type === 'output');
      expect(told).toHaveLength(rest.length);
      const got = joined(told);
      for (const stream of STREAMS)
        expect(got[stream].equals(whole[stream].subarray(begin[stream]))).toBe(true);
      for (const { stream, offset, bytes } of told)
        expect(whole[stream].subarray(offset, offset + bytes.length).equals(bytes)).toBe(true);
    }),
    { numRuns: 300 },
  );
});

test('a resume after the end yields the kept bytes and the end', async () => {
  const output = outputOf(historyOf(LIMIT));
  output.write('stdout', Buffer.from('abc'));
  output.end({ type: 'end' } as EndEvent);
  const reader = output.read(7, { stdout: 1, stderr: 0, pty: 0 });
  const [, tail, end] = (await reader.next()) ?? [];
  expect(tail).toMatchObject({ offset: 1, bytes: Buffer.from('bc') });
  expect(end).toEqual({ type: 'end' });
  expect(await reader.next()).toBeNull();
});

test('a limit of 0 keeps nothing', async () => {
  const output = outputOf(historyOf(0));
  output.write('stdout', Buffer.from('abc'));
  expect(await resume(output, { stdout: 0, stderr: 0, pty: 0 })).toEqual([
    { type: 'start', pid: 7, offsets: { stdout: 3, stderr: 0, pty: 0 } },
    { type: 'gap', from: { stdout: 0, stderr: 0, pty: 0 }, to: { stdout: 3, stderr: 0, pty: 0 } },
  ]);
});

test('an offset that was not reached is refused', () => {
  const output = outputOf(historyOf(LIMIT));
  output.write('stderr', Buffer.from('abc'));
  expect(() => output.read(7, { stdout: 0, stderr: 4, pty: 0 })).toThrow(
    'cannot resume stderr from 4: 3 bytes were written',
  );
});

test('many tiny writes use almost the whole limit', async () => {
  const history = historyOf(1024 * 1024);
  const output = outputOf(history);
  for (let line = 0; line < 200_000; line++) output.write('stdout', Buffer.from('ten bytes\n'));
  const kept = 2_000_000 - (history.firstOffset('stdout') ?? 0);
  expect(kept).toBeGreaterThan(0.9 * 1024 * 1024);
});

test('events that a reader has received do not change by later writes', async () => {
  const output = outputOf(historyOf(LIMIT));
  output.write('stdout', Buffer.from('one'));
  output.write('stdout', Buffer.from('two'));
  const [, before] = await resume(output, { stdout: 0, stderr: 0, pty: 0 });
  output.write('stdout', Buffer.from('three'));
  expect(before).toMatchObject({ bytes: Buffer.from('onetwo') });
});

describe('a store', () => {
  const append = (history: History, length: number) =>
    history.append('stdout', Buffer.alloc(length), { stdout: 0, stderr: 0, pty: 0 });

  test('drops the history that was idle longest, and no more than necessary', () => {
    const store = new OutputStore(8000, 10_000);
    const [first, second, third] = [new History(store), new History(store), new History(store)];
    append(first, 3000);
    append(second, 3000);
    append(first, 500);
    append(third, 3000);
    expect([first, second, third].map(({ cost }) => cost > 0)).toEqual([true, false, true]);
    expect(store.used).toBe(first.cost + third.cost);
    first.clear();
    third.clear();
    expect(store.used).toBe(0);
  });

  test('allows a single history its whole limit', () => {
    const history = new History(new OutputStore(8000, 100));
    append(history, 5000);
    expect(history.cost).toBeGreaterThan(5000);
  });

  test('counts the bytes of all histories', () => {
    const steps = fc.array(fc.record({ of: fc.nat(3), length: fc.nat(3000), clear: fc.boolean() }));
    fc.assert(
      fc.property(steps, (all) => {
        const store = new OutputStore(LIMIT, 12_000);
        const histories = Array.from({ length: 4 }, () => new History(store));
        for (const { of, length, clear } of all) {
          const history = histories[of];
          if (!history) continue;
          if (clear) history.clear();
          else append(history, length);
          expect(store.used).toBe(histories.reduce((sum, { cost }) => sum + cost, 0));
          expect(store.used).toBeLessThanOrEqual(12_000);
        }
      }),
    );
  });
});
