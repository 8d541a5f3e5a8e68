import assert from 'node:assert/strict';
import { ByteSource } from '../../../src/daemon/extensions/archives/format/byte-source.ts';
import { TarReader } from '../../../src/daemon/extensions/archives/format/reader.ts';
import { memberPath } from '../../../src/daemon/extensions/archives/unpack/member-path.ts';
import { seal } from '../../support/services/tar-archive.ts';
import { cut, refusalOf, unlessRefused } from '../refused.ts';

const BLOCK = 512;

/** Archives. First byte: the number of cuts that follow, then the archive, whose checksums are made right. */
export async function fuzz(data: Buffer): Promise<void> {
  const cuts = data.subarray(1, 1 + (data[0] ?? 0));
  const archive = Buffer.from(data.subarray(1 + cuts.length));
  for (let at = 0; at + BLOCK <= archive.length; at += BLOCK) {
    const block = archive.subarray(at, at + BLOCK);
    // A field that looks like a checksum: content stays as it is.
    if (/^[0-7 ]{6}/.test(block.toString('latin1', 148, 154))) seal(block);
  }
  const members = await read([archive]);
  assert.deepEqual(await read([...cut(archive, cuts)]), members);
}

/** What each member is, and at last the error. */
async function read(pieces: readonly Buffer[]): Promise<unknown[]> {
  const found: unknown[] = [];
  try {
    const reader = new TarReader(new ByteSource(each(pieces)));
    for (let member = await reader.next(); member; member = await reader.next()) {
      const { size, nanoseconds } = member;
      assert(Number.isSafeInteger(size) && size >= 0);
      assert(nanoseconds >= 0 && nanoseconds < 1e9);
      found.push(
        member,
        unlessRefused(() => memberPath(member.name)),
      );
    }
  } catch (error) {
    found.push(refusalOf(error));
  }
  return found;
}

async function* each(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  yield* pieces;
}
