import { describe, expect, test } from 'vitest';
import { LogQueue } from '../../../../../src/daemon/services/collector/log-queue.ts';

/** As documented. */
const BATCH_BYTES = 256 * 1024;
const LIMIT = 8 * 1024 * 1024;
const line = (n: number, text = '') => `${JSON.stringify({ n, text })}\n`;
const take = (queue: LogQueue, ids = '') => JSON.parse(queue.take(ids)) as { n: number }[];

/** All lines, batch by batch. */
function drain(queue: LogQueue): number[] {
  const all: number[] = [];
  while (!queue.isEmpty) {
    all.push(...take(queue).map(({ n }) => n));
    queue.settle('sent');
  }
  return all;
}

test('lines come out as they went in, in batches of a limited size', () => {
  const queue = new LogQueue(LIMIT);
  const count = 20_000;
  for (let n = 0; n < count; n++) queue.write(line(n, 'größer "}\n{" $& ☃'));
  const sizes: number[] = [];
  const all: { n: number; text?: string }[] = [];
  while (!queue.isEmpty) {
    const body = queue.take('');
    sizes.push(Buffer.byteLength(body));
    all.push(...(JSON.parse(body) as { n: number; text: string }[]));
    queue.settle('sent');
  }
  expect(all).toEqual(Array.from({ length: count }, (_, n) => ({ n, text: 'größer "}\n{" $& ☃' })));
  expect(sizes.length).toBeGreaterThan(3);
  // The array has a comma and a newline for each newline.
  expect(Math.max(...sizes)).toBeLessThan(BATCH_BYTES * 1.05);
  expect(queue.bytes).toBe(0);
  expect(queue.counts).toEqual({ sent: count, refused: 0, dropped: 0 });
});

test('a full queue drops the oldest lines and counts them', () => {
  const queue = new LogQueue(LIMIT);
  const count = 12_000;
  for (let n = 0; n < count; n++) {
    queue.write(line(n, 'x'.repeat(1000)));
    expect(queue.bytes).toBeLessThanOrEqual(LIMIT);
  }
  expect(queue.bytes).toBeGreaterThan(LIMIT - 32 * 1024);
  const { dropped } = queue.counts;
  expect(dropped).toBeGreaterThan(3000);
  expect(drain(queue)).toEqual(Array.from({ length: count - dropped }, (_, i) => i + dropped));
});

test('a batch that is under way is not dropped; one that was kept is', () => {
  const queue = new LogQueue(2 * BATCH_BYTES);
  queue.write(line(0));
  const first = take(queue);
  for (let n = 1; n < 2000; n++) queue.write(line(n, 'x'.repeat(1000)));
  expect(queue.bytes).toBeLessThanOrEqual(2 * BATCH_BYTES);
  queue.settle('kept');
  expect(take(queue)[0]).toEqual(first[0]);
  queue.settle('kept');
  for (let n = 2000; n < 2100; n++) queue.write(line(n, 'x'.repeat(1000)));
  expect(take(queue)[0]?.n).toBeGreaterThan(0);
});

test('lines that wait for hours, tried again and again, stay within the limit', () => {
  const queue = new LogQueue(2 * BATCH_BYTES);
  for (let n = 0; n < 800; n++) {
    queue.write(line(n, 'x'.repeat(1000)));
    queue.take('');
    queue.settle('kept');
    expect(queue.bytes).toBeLessThanOrEqual(2 * BATCH_BYTES);
  }
  // No block of one line takes the place of a whole one.
  expect(queue.counts.dropped).toBeLessThan(800 - 350);
});

test('a line longer than a batch is dropped', () => {
  const queue = new LogQueue(LIMIT);
  queue.write(line(0, 'x'.repeat(BATCH_BYTES)));
  queue.write(line(1));
  expect(drain(queue)).toEqual([1]);
  expect(queue.counts).toEqual({ sent: 1, refused: 0, dropped: 1 });
});

test('without a limit nothing is kept', () => {
  const queue = new LogQueue(LIMIT);
  queue.write(line(0));
  queue.limit = 0;
  queue.write(line(1));
  expect([queue.isEmpty, queue.bytes, queue.counts.dropped]).toEqual([true, 0, 0]);
});

describe('ids', () => {
  const ids = (id: string) => `"instanceID":${JSON.stringify(id)},`;

  test('are in each line, whatever is in them', () => {
    const queue = new LogQueue(LIMIT);
    queue.write(line(0));
    queue.write(line(1));
    const odd = '$& "quoted" \\ \n{';
    expect(take(queue, ids(odd))).toEqual([0, 1].map((n) => ({ instanceID: odd, n, text: '' })));
  });

  test('are those of the time when the lines were written, if they were known then', () => {
    const queue = new LogQueue(LIMIT);
    queue.write(line(0));
    queue.stamp(ids('old'));
    queue.write(line(1));
    queue.stamp(ids('middle'));
    queue.write(line(2));
    expect(take(queue, ids('new'))).toMatchObject(
      ['old', 'middle', 'new'].map((instanceID) => ({ instanceID })),
    );
  });
});

test('what is logged quietly is not added', () => {
  const queue = new LogQueue(LIMIT);
  queue.quietly(() => queue.write(line(0)));
  queue.write(line(1));
  expect(drain(queue)).toEqual([1]);
});
