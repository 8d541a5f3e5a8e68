import { expect, test } from 'vitest';
import { LastLines } from '../../../src/cli/process/last-lines.ts';

const MIB = 1024 * 1024;
const MOST_BYTES = 16 * MIB;

const piece = (data: Uint8Array) => ({ type: 'output', kind: 'stdout', data }) as const;
const sizeOf = (last: LastLines) => last.take().reduce((sum, { data }) => sum + data.length, 0);

test('a line that has no end is cut at its start', () => {
  const last = new LastLines(1);
  last.add(piece(Buffer.from('first\n')));
  const endless = new Uint8Array(MIB).fill(0x79);
  for (let count = 0; count < 40; count++) last.add(piece(endless));
  last.add(piece(Buffer.from('end')));
  expect(last.take().at(-1)?.data.toString()).toBe('end');
  const kept = sizeOf(last);
  expect(kept).toBeGreaterThan(MOST_BYTES - 2 * MIB);
  expect(kept).toBeLessThanOrEqual(MOST_BYTES);
});

test('tiny pieces count for the memory that they take', () => {
  const last = new LastLines(10_000_000);
  for (let count = 0; count < 70_000; count++) last.add(piece(Buffer.of(0x79)));
  expect(sizeOf(last)).toBeLessThan(66_000);
});
