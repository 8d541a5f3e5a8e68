import { describe, expect, test } from 'vitest';
import { writeInBatches } from '../../../../../src/daemon/services/files/batches.ts';

async function* pieces(count: number, size: number): AsyncGenerator<Buffer> {
  for (let index = 0; index < count; index++) yield Buffer.alloc(size, index);
}

const bytesOf = (batch: readonly Buffer[]) => batch.reduce((sum, { length }) => sum + length, 0);

describe('batches', () => {
  test('are large, ordered, and written one at a time', async () => {
    const written: number[] = [];
    const sizes: number[] = [];
    let underWay = 0;
    await writeInBatches(pieces(20, 65536), async (batch) => {
      underWay += 1;
      expect(underWay).toBe(1);
      await new Promise((resolve) => setImmediate(resolve));
      written.push(...batch.map((piece) => piece[0] ?? -1));
      sizes.push(bytesOf(batch));
      underWay -= 1;
    });
    expect(sizes).toEqual([524288, 524288, 262144]);
    expect(written).toEqual(Array.from({ length: 20 }, (_, index) => index));
  });

  test('of tiny pieces are limited by their number', async () => {
    const counts: number[] = [];
    await writeInBatches(pieces(2500, 1), async (batch) => {
      counts.push(batch.length);
    });
    expect(counts).toEqual([1024, 1024, 452]);
  });

  test('free the memory of pieces, but not of shared buffers', async () => {
    const own = Buffer.alloc(10_000, 1);
    const shared = Buffer.alloc(10_000, 2);
    async function* content() {
      yield own;
      yield shared.subarray(0, 5000);
    }
    await writeInBatches(content(), async (batch) =>
      expect(batch.map(({ length }) => length)).toEqual([10_000, 5000]),
    );
    expect(own.length).toBe(0);
    expect(shared.every((byte) => byte === 2)).toBe(true);
  });

  test('without content nothing is written', async () => {
    const batches: unknown[] = [];
    await writeInBatches(pieces(0, 1), async (batch) => void batches.push(batch));
    expect(batches).toEqual([]);
  });

  test('an error of the content is thrown after the current write has ended', async () => {
    let ended = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    async function* broken() {
      yield* pieces(8, 65536);
      resolve();
      throw new Error('broken off');
    }
    const write = async () => {
      await promise;
      await new Promise((next) => setImmediate(next));
      ended = true;
    };
    await expect(writeInBatches(broken(), write)).rejects.toThrow('broken off');
    expect(ended).toBe(true);
  });

  test('an error of any write, also the last, ends the reading', async () => {
    let read = 0;
    async function* counted() {
      for await (const piece of pieces(100, 524288)) {
        read += 1;
        yield piece;
      }
    }
    const fail = () => Promise.reject(new Error('full'));
    await expect(writeInBatches(counted(), fail)).rejects.toThrow('full');
    expect(read).toBeLessThan(4);
    await expect(writeInBatches(pieces(1, 1), fail)).rejects.toThrow('full');
  });
});
