import { createHash, randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PooledDigest } from '../../../../src/daemon/os/digest.ts';

test.each(['sha-256', 'sha-512'])(
  '%s equals that of node:crypto, however the input is split',
  async (algorithm) => {
    const pieces = fc.array(fc.array(fc.uint8Array({ maxLength: 300 }), { maxLength: 5 }), { maxLength: 5 });
    await fc.assert(
      fc.asyncProperty(pieces, async (updates) => {
        const digest = new PooledDigest(algorithm);
        const hash = createHash(algorithm);
        for (const list of updates) {
          for (const piece of list) hash.update(piece);
          await digest.update(list.map((piece) => Buffer.from(piece)));
        }
        expect(digest.finish()).toEqual(hash.digest());
      }),
    );
  },
);

test('the event loop continues during an update', async () => {
  const digest = new PooledDigest('sha-256');
  let turns = 0;
  let next = setImmediate(function turn() {
    turns++;
    next = setImmediate(turn);
  });
  await digest.update([randomBytes(32 * 1024 * 1024)]);
  clearImmediate(next);
  expect(turns).toBeGreaterThan(1);
});

test('a piece is not freed before it was digested', async () => {
  const hash = createHash('sha-256');
  const digest = new PooledDigest('sha-256');
  for (let round = 0; round < 50; round++) {
    const piece = randomBytes(500_000);
    hash.update(piece);
    const taken = digest.update([piece]);
    // Nobody else holds the piece: the allocations make the garbage collector run.
    Array.from({ length: 20 }, () => Buffer.alloc(500_000));
    await taken;
  }
  expect(digest.finish()).toEqual(hash.digest());
});

test('an unknown algorithm and an argument without bytes are refused', async () => {
  expect(() => new PooledDigest('md0')).toThrow('EINVAL');
  const digest = new PooledDigest('sha-256');
  await expect(digest.update(['text' as unknown as Buffer])).rejects.toThrow();
  expect(digest.finish()).toEqual(createHash('sha-256').digest());
});
