import { expect, test } from 'vitest';
import { EnvdError } from '../../../../../../../src/base/errors.ts';
import { ByteSource } from '../../../../../../../src/daemon/services/files/tar/format/byte-source.ts';
import { readGnuSparse } from '../../../../../../../src/daemon/services/files/tar/format/sparse-reader.ts';

const BLOCK = 512;
const IN_HEADER = 4;
const IN_BLOCK = 21;

/** A header of type `S` and its extensions: ranges of one byte, two bytes apart. Source: tar(5), "GNU tar archives". */
function sparse(extensions: number): { header: Buffer; source: ByteSource; count: number } {
  let next = 0;
  const block = (at: number, count: number, flag: number, hasMore: boolean) => {
    const bytes = Buffer.alloc(BLOCK);
    for (let index = 0; index < count; index++, next++) {
      bytes.write(`${(next * 2).toString(8).padStart(11, '0')}\0${'1'.padStart(11, '0')}\0`, at + index * 24);
    }
    bytes[flag] = Number(hasMore);
    return bytes;
  };
  const header = block(386, IN_HEADER, 482, extensions > 0);
  const blocks = Array.from({ length: extensions }, (_, index) =>
    block(0, IN_BLOCK, 504, index < extensions - 1),
  );
  header.write((next * 2).toString(8).padStart(11, '0'), 483);
  const pieces = async function* () {
    yield Buffer.concat(blocks);
  };
  return { header, source: new ByteSource(pieces()), count: next };
}

const refuse = (problem: string): never => {
  throw new EnvdError('invalid_argument', problem);
};

test.each([0, 1, 4761])('a file of GNU with %d blocks of ranges', async (extensions) => {
  const { header, source, count } = sparse(extensions);
  const { ranges, size } = await readGnuSparse(header, source, refuse);
  expect([ranges.length, size]).toEqual([count, count * 2]);
  expect(ranges.at(-1)).toEqual({ start: (count - 1) * 2, length: 1 });
});

test('one with more than 100,000 is refused, and not read further', async () => {
  const { header, source } = sparse(5000);
  await expect(readGnuSparse(header, source, refuse)).rejects.toThrow('too many ranges');
  expect(source.position).toBe(4762 * BLOCK);
});
