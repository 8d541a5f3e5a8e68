import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Offsets, OutputStream, ProcessEvent } from '../../../../src/services/process/events.ts';
import { Output } from '../../../../src/services/process/output.ts';

const STREAMS: readonly OutputStream[] = ['stdout', 'stderr', 'pty'];
const LIMIT = 4000;
const EVENT_BYTES = 256;

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

/** Where the last writes begin that fit into the limit together, each with its overhead. */
function keptFrom(all: readonly Write[]): Record<OutputStream, number> {
  let first = all.length;
  for (let cost = 0; first > 0; first--) {
    cost += (all[first - 1]?.bytes.length ?? 0) + EVENT_BYTES;
    if (cost > LIMIT) break;
  }
  const gone = joined(all.slice(0, first));
  return each((stream) => gone[stream].length);
}

async function resume(output: Output, from: Offsets): Promise<ProcessEvent[]> {
  return [...((await output.read(7, from).next()) ?? [])];
}

test('a resume gives exactly the bytes from the offsets on, or the gap that is missing', async () => {
  await fc.assert(
    fc.asyncProperty(writes, shares, async (all, share) => {
      const output = new Output(() => {}, LIMIT);
      for (const { stream, bytes } of all) output.write(stream, Buffer.from(bytes));
      const whole = joined(all);
      const kept = keptFrom(all);
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

test('after the end, what is kept and then the end', async () => {
  const output = new Output(() => {}, LIMIT);
  output.write('stdout', Buffer.from('abc'));
  output.end({ type: 'end' } as ProcessEvent);
  const reader = output.read(7, { stdout: 1, stderr: 0, pty: 0 });
  const [, tail] = (await reader.next()) ?? [];
  expect(tail).toMatchObject({ offset: 1, bytes: Buffer.from('bc') });
  expect(await reader.next()).toEqual([{ type: 'end' }]);
  expect(await reader.next()).toBeNull();
});

test('nothing is kept with a limit of 0', async () => {
  const output = new Output(() => {}, 0);
  output.write('stdout', Buffer.from('abc'));
  expect(await resume(output, { stdout: 0, stderr: 0, pty: 0 })).toEqual([
    { type: 'start', pid: 7, offsets: { stdout: 3, stderr: 0, pty: 0 } },
    { type: 'gap', from: { stdout: 0, stderr: 0, pty: 0 }, to: { stdout: 3, stderr: 0, pty: 0 } },
  ]);
});

test('an offset that has not been reached is refused', () => {
  const output = new Output(() => {}, LIMIT);
  output.write('stderr', Buffer.from('abc'));
  expect(() => output.read(7, { stdout: 0, stderr: 4, pty: 0 })).toThrow(
    'cannot resume stderr from 4: 3 bytes were written',
  );
});
