import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { Semaphore } from '../../../../../../src/base/semaphore.ts';
import { ContentBatches } from '../../../../../../src/daemon/http/rest/files/batches.ts';

function* pieces(count: number, size: number): Generator<Buffer> {
  for (let index = 0; index < count; index++) yield Buffer.alloc(size, index);
}

/** A stream of bytes, which delivers one piece at a time. */
const streamOf = (content: Iterable<Buffer>) => Readable.from(content, { objectMode: false });
const bytesOf = (batch: readonly Buffer[]) => batch.reduce((sum, { length }) => sum + length, 0);
const plenty = new Semaphore(Number.POSITIVE_INFINITY);
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Reads all batches; `work` is done with each before the next one is asked for. */
async function read(
  source: Readable,
  work: (batch: Buffer[]) => Promise<unknown> = turn,
  room = plenty,
): Promise<Buffer[][]> {
  const found: Buffer[][] = [];
  for await (const batch of new ContentBatches(source, room)) {
    found.push(batch);
    await work(batch);
  }
  return found;
}

describe('batches', () => {
  test('are large and in order', async () => {
    const batches = await read(streamOf(pieces(20, 65536)));
    expect(batches.map(bytesOf)).toEqual([524288, 524288, 262144]);
    expect(batches.flat().map((piece) => piece[0])).toEqual(Array.from({ length: 20 }, (_, index) => index));
  });

  test('of tiny pieces are limited by their number', async () => {
    const batches = await read(streamOf(pieces(2500, 1)));
    expect(batches.map(({ length }) => length)).toEqual([1024, 1024, 452]);
  });

  test('are small without room, which an end gives back', async () => {
    const room = new Semaphore(2 * (524288 - 65536));
    const held = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const sizesOf = async (whenUsed: Promise<void>) => {
      const use = () => {
        begun.resolve();
        return whenUsed;
      };
      return (await read(streamOf(pieces(16, 65536)), use, room)).map(bytesOf);
    };
    const first = sizesOf(held.promise);
    await begun.promise;
    expect(await sizesOf(Promise.resolve())).toEqual(Array.from({ length: 16 }, () => 65536));
    held.resolve();
    expect(await first).toEqual([524288, 524288]);
    expect(await sizesOf(Promise.resolve())).toEqual([524288, 524288]);
  });

  test('become larger when room is given back while a small one waits', async () => {
    const bytes = 2 * (524288 - 65536);
    const room = new Semaphore(bytes);
    room.take(bytes);
    const source = streamOf(pieces(16, 65536));
    const use = async () => {
      await expect.poll(() => source.isPaused() || source.readableEnded).toBe(true);
      room.release(bytes);
    };
    const sizes = (await read(source, use, room)).map(bytesOf);
    expect(sizes.slice(0, 2)).toEqual([65536, 524288]);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(16 * 65536);
  });

  test('wait in the source while their reader is slow', async () => {
    let count = 0;
    function* counted() {
      for (const piece of pieces(64, 65536)) {
        count += 1;
        yield piece;
      }
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const source = streamOf(counted());
    const done = read(source, () => promise);
    await expect.poll(() => source.isPaused()).toBe(true);
    await turn();
    // One batch is used and one is complete; the stream has a buffer of its own.
    expect(count).toBeLessThan(20);
    resolve();
    await done;
    expect(count).toBe(64);
  });

  test('of a stream without content: none', async () => {
    expect(await read(streamOf([]))).toEqual([]);
  });
});

describe('an error', () => {
  test('of the source is thrown when the batch before it has been used', async () => {
    let isUsed = false;
    function* broken() {
      yield* pieces(8, 65536);
      throw Object.assign(new Error('broken off'), { code: 'ECONNRESET' });
    }
    const use = async () => {
      for (let turns = 0; turns < 3; turns++) await turn();
      isUsed = true;
    };
    await expect(read(streamOf(broken()), use)).rejects.toMatchObject({ kind: 'aborted' });
    expect(isUsed).toBe(true);
  });

  test('of the reader ends the reading, pauses the source and does not destroy it', async () => {
    const source = streamOf(pieces(100, 524288));
    await expect(read(source, () => Promise.reject(new Error('full')))).rejects.toThrow('full');
    expect(source.readableEnded).toBe(false);
    expect(source.destroyed).toBe(false);
    expect(source.isPaused()).toBe(true);
    expect(source.listenerCount('data')).toBe(0);
  });

  test('of a source that is destroyed already', async () => {
    const source = streamOf(pieces(1, 1));
    source.destroy();
    await expect(read(source)).rejects.toMatchObject({ kind: 'aborted' });
  });
});
