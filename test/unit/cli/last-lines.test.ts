import { expect, test } from 'vitest';
import { LastLines } from '../../../src/cli/process/last-lines.ts';

const MIB = 1024 * 1024;
const MOST_BYTES = 64 * MIB;

const piece = (data: Uint8Array) => ({ type: 'output', kind: 'stdout', data }) as const;

/** How many bytes are shown, the last ones as text, and whether some are missing. */
function shown(last: LastLines) {
  const events = last.take();
  const data = events.flatMap((event) => (event.type === 'output' ? [event.data] : []));
  return {
    bytes: data.reduce((sum, { length }) => sum + length, 0),
    text: Buffer.from(data.at(-1) ?? []).toString(),
    isGap: events.map(({ type }) => type).indexOf('gap') === 0,
  };
}

/** Adds a line of some MiB, without its end. */
function addLong(last: LastLines, mebibytes: number): void {
  const part = new Uint8Array(MIB).fill(0x79);
  for (let count = 0; count < mebibytes; count++) last.add(piece(part));
}

test('a line that has no end is cut at its start, and that is told', () => {
  const last = new LastLines(1);
  last.add(piece(Buffer.from('first\n')));
  addLong(last, 80);
  last.add(piece(Buffer.from('end')));
  const { bytes, text, isGap } = shown(last);
  expect([text, isGap]).toEqual(['end', true]);
  expect(bytes).toBeGreaterThan(MOST_BYTES - 2 * MIB);
  expect(bytes).toBeLessThanOrEqual(MOST_BYTES);
});

test('what is not wanted is no gap', () => {
  const last = new LastLines(1);
  addLong(last, 80);
  last.add(piece(Buffer.from('\n')));
  last.add(piece(Buffer.from('end\n')));
  expect(shown(last)).toEqual({ bytes: 4, text: 'end\n', isGap: false });
  const few = new LastLines(10);
  few.add(piece(Buffer.from('end\n')));
  expect(shown(few)).toEqual({ bytes: 4, text: 'end\n', isGap: false });
});

test('tiny pieces count for the memory that they take', () => {
  const last = new LastLines(10_000_000);
  for (let count = 0; count < 263_000; count++) last.add(piece(Buffer.of(0x79)));
  expect(shown(last).bytes).toBeLessThan(262_000);
});
