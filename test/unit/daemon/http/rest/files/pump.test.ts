import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { Allowance } from '../../../../../../src/base/allowance.ts';
import { pump as pumpWithin } from '../../../../../../src/daemon/http/rest/files/pump.ts';
import type { Sink } from '../../../../../../src/daemon/services/files/uploads/sink.ts';

function* pieces(count: number, size: number): Generator<Buffer> {
  for (let index = 0; index < count; index++) yield Buffer.alloc(size, index);
}

function sinkOf(write: Sink['write']): Sink {
  return { write, canReceive: async () => false, receive: () => Promise.reject(new Error('a socket')) };
}

/** A stream of bytes, which delivers one piece at a time. */
const streamOf = (content: Iterable<Buffer>) => Readable.from(content, { objectMode: false });
const bytesOf = (batch: readonly Buffer[]) => batch.reduce((sum, { length }) => sum + length, 0);
const plenty = new Allowance(Number.POSITIVE_INFINITY);
const pump = (source: Readable, sink: Sink) => pumpWithin(source, sink, plenty);
const turn = () => new Promise((resolve) => setImmediate(resolve));

describe('batches', () => {
  test('are large, ordered, and written one at a time', async () => {
    const written: number[] = [];
    const sizes: number[] = [];
    let underWay = 0;
    const sink = sinkOf(async (batch) => {
      underWay += 1;
      expect(underWay).toBe(1);
      await turn();
      written.push(...batch.map((piece) => piece[0] ?? -1));
      sizes.push(bytesOf(batch));
      underWay -= 1;
    });
    await pump(streamOf(pieces(20, 65536)), sink);
    expect(sizes).toEqual([524288, 524288, 262144]);
    expect(written).toEqual(Array.from({ length: 20 }, (_, index) => index));
  });

  test('of tiny pieces are limited by their number', async () => {
    const counts: number[] = [];
    await pump(
      streamOf(pieces(2500, 1)),
      sinkOf(async (batch) => void counts.push(batch.length)),
    );
    expect(counts).toEqual([1024, 1024, 452]);
  });

  test('are small without room, which an end gives back', async () => {
    const room = new Allowance(2 * (524288 - 65536));
    const held = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const sizesOf = async (whenWritten: Promise<void>) => {
      const sizes: number[] = [];
      const sink = sinkOf(async (batch) => {
        sizes.push(bytesOf(batch));
        begun.resolve();
        await whenWritten;
      });
      await pumpWithin(streamOf(pieces(16, 65536)), sink, room);
      return sizes;
    };
    const first = sizesOf(held.promise);
    await begun.promise;
    expect(await sizesOf(Promise.resolve())).toEqual(Array.from({ length: 16 }, () => 65536));
    held.resolve();
    expect(await first).toEqual([524288, 524288]);
    expect(await sizesOf(Promise.resolve())).toEqual([524288, 524288]);
  });

  test('wait in the source while the sink is slow', async () => {
    let read = 0;
    function* counted() {
      for (const piece of pieces(64, 65536)) {
        read += 1;
        yield piece;
      }
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const source = streamOf(counted());
    const done = pump(
      source,
      sinkOf(() => promise),
    );
    await expect.poll(() => source.isPaused()).toBe(true);
    await turn();
    // One batch is written and one is complete; the stream has a buffer of its own.
    expect(read).toBeLessThan(20);
    resolve();
    await done;
    expect(read).toBe(64);
  });

  test('without content nothing is written', async () => {
    const batches: unknown[] = [];
    await pump(
      streamOf([]),
      sinkOf(async (batch) => void batches.push(batch)),
    );
    expect(batches).toEqual([]);
  });
});

describe('an error', () => {
  test('of the source is thrown after the current write has ended', async () => {
    let ended = false;
    const { promise, resolve } = Promise.withResolvers<void>();
    function* broken() {
      yield* pieces(8, 65536);
      resolve();
      throw new Error('broken off');
    }
    const sink = sinkOf(async () => {
      await promise;
      await turn();
      ended = true;
    });
    await expect(pump(streamOf(broken()), sink)).rejects.toThrow('broken off');
    expect(ended).toBe(true);
  });

  test('of any write, also the last, ends the reading and does not destroy the source', async () => {
    const fail = sinkOf(() => Promise.reject(new Error('full')));
    const source = streamOf(pieces(100, 524288));
    await expect(pump(source, fail)).rejects.toThrow('full');
    expect(source.readableEnded).toBe(false);
    expect(source.destroyed).toBe(false);
    expect(source.isPaused()).toBe(true);
    await expect(pump(streamOf(pieces(1, 1)), fail)).rejects.toThrow('full');
  });

  test('of a source that is destroyed already', async () => {
    const source = streamOf(pieces(1, 1));
    source.destroy();
    const sink = sinkOf(async () => expect.unreachable());
    await expect(pump(source, sink)).rejects.toMatchObject({ code: 'ERR_STREAM_PREMATURE_CLOSE' });
  });
});
