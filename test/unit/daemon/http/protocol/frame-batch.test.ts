import { describe, expect, test } from 'vitest';
import { FrameBatch } from '../../../../../src/daemon/http/protocol/frame-batch.ts';
import { FakeResponse } from '../../../../support/clients/response.ts';

const LARGE = 8 * 1024;
const large = Buffer.alloc(LARGE, 'L');
const pool: FrameBatch[] = [];

function send(batch: FrameBatch, takesAtOnce = true) {
  const fake = new FakeResponse(takesAtOnce);
  return { fake, sent: batch.send(FakeResponse.asResponse(fake)) };
}

function batchOf(...parts: (string | Buffer)[]): FrameBatch {
  const batch = FrameBatch.take(pool);
  for (const part of parts) batch.add(Buffer.from(part));
  return batch;
}

describe('a written batch', () => {
  test('joins small parts and passes large ones through, in order', () => {
    const batch = FrameBatch.take(pool);
    batch.add(Buffer.from('a'));
    batch.allocate(1).write('b');
    batch.add(large);
    batch.add(Buffer.from('c'));
    const { fake } = send(batch);
    expect(fake.taken.map((part) => String(part))).toEqual(['ab', String(large), 'c']);
  });

  test('uses other memory for what does not fit into its buffer, in order', () => {
    const batch = FrameBatch.take(pool);
    const parts = Array.from({ length: 60 }, (_, index) =>
      Buffer.alloc(LARGE - 1, String.fromCharCode(65 + index)),
    );
    for (const part of parts) batch.allocate(part.length).set(part);
    const { fake } = send(batch);
    expect(Buffer.concat(fake.taken).equals(Buffer.concat(parts))).toBe(true);
  });

  test('can be written to several readers', () => {
    const batch = batchOf('shared', large, 'end');
    batch.hold();
    const texts = [1, 2, 3].map(() => String(Buffer.concat(send(batch).fake.taken)));
    batch.release();
    expect(new Set(texts)).toEqual(new Set([`shared${large}end`]));
  });
});

describe('the buffer of a batch', () => {
  test('is reused at once when the kernel has taken everything', () => {
    const batch = batchOf('a');
    expect(send(batch).sent).toBeNull();
    const again = FrameBatch.take(pool);
    expect(again).toBe(batch);
    again.add(Buffer.from('b'));
    expect(send(again).fake.taken.map(String)).toEqual(['b']);
  });

  test('is returned once, even when the write callback comes late', async () => {
    const batch = batchOf('a');
    send(batch);
    await Promise.resolve();
    expect(FrameBatch.take(pool)).toBe(batch);
    const other = FrameBatch.take(pool);
    expect(other).not.toBe(batch);
    for (const taken of [batch, other]) {
      taken.add(Buffer.from('x'));
      send(taken);
    }
  });

  test('is not reused before the kernel has taken everything', async () => {
    const batch = batchOf('slow');
    const { fake, sent } = send(batch, false);
    for (let count = 0; count < 10; count++) {
      const other = batchOf('other');
      expect(other).not.toBe(batch);
      send(other);
    }
    fake.take();
    await sent;
    expect(String(fake.taken)).toBe('slow');
    expect(FrameBatch.take(pool)).toBe(batch);
    batch.add(Buffer.from('x'));
    send(batch);
  });

  test('is not reused while it is held', () => {
    const batch = batchOf('held');
    batch.hold();
    send(batch);
    const other = FrameBatch.take(pool);
    expect(other).not.toBe(batch);
    other.add(Buffer.from('over it'));
    send(other);
    expect(send(batch).fake.taken.map(String)).toEqual(['held']);
    batch.release();
    expect(FrameBatch.take(pool)).toBe(batch);
    batch.add(Buffer.from('x'));
    send(batch);
  });

  test('is freed by clear', () => {
    const batch = batchOf('secret');
    send(batch);
    pool.length = 0;
    expect(FrameBatch.take(pool)).not.toBe(batch);
  });
});
