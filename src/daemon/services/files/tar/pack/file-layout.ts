import type { DataRange } from '../../../../linux/files/directory-reader.ts';
import type { OpenFile } from '../../../../linux/files/open-file.ts';
import type { BytePath } from '../../../../linux/paths/byte-path.ts';
import { BLOCK, type BlockWriter } from '../format/block-writer.ts';
import type { PaxRecord } from '../format/header-writer.ts';

/** How a regular file is stored in an archive. */
export interface FileLayout {
  /** The name in the header. */
  readonly name: BytePath;
  readonly records: readonly PaxRecord[];
  /** What is stored before the content, or null. */
  readonly before: Buffer | null;
  /** The parts of the content that are stored. */
  readonly ranges: readonly DataRange[];
  /** Bytes stored in all. */
  readonly stored: number;
}

/** The layout of a file of `size` bytes; `map`: the ranges that hold data, null when all of it does. */
export function layoutOf(name: BytePath, size: number, map: readonly DataRange[] | null): FileLayout {
  if (!map) return { name, records: [], before: null, ranges: [{ start: 0, length: size }], stored: size };
  // The file may have been truncated since.
  const ranges = map
    .filter(({ start }) => start < size)
    .map(({ start, length }) => ({ start, length: Math.min(length, size - start) }));
  return sparseLayout(name, size, ranges);
}

/**
 * The format of GNU tar, version 1.0: the content is preceded by the map of its ranges, in decimal numbers, one a line:
 * their count, then start and length of each. Source: GNU tar's manual, "Storing Sparse Files".
 */
function sparseLayout(name: BytePath, size: number, ranges: readonly DataRange[]): FileLayout {
  // A range of length 0 at the end of the file, as GNU tar writes it, ends a trailing hole.
  const listed = [...ranges, { start: size, length: 0 }];
  const text = [listed.length, ...listed.flatMap(({ start, length }) => [start, length])].join('\n');
  const before = Buffer.alloc(Math.ceil((text.length + 1) / BLOCK) * BLOCK);
  before.write(`${text}\n`, 'latin1');
  const slash = name.lastIndexOf('/') + 1;
  return {
    name: `${name.slice(0, slash)}GNUSparseFile.0/${name.slice(slash)}`,
    records: [
      ['GNU.sparse.major', '1'],
      ['GNU.sparse.minor', '0'],
      ['GNU.sparse.name', name],
      ['GNU.sparse.realsize', String(size)],
    ],
    before,
    ranges,
    stored: ranges.reduce((sum, { length }) => sum + length, before.length),
  };
}

/**
 * Copies the ranges of an open file to the archive, and pads it. Returns false when the file ended early or could not
 * be read: then the rest of it is zeros, so that the archive stays well-formed.
 */
export async function* copyRanges(
  out: BlockWriter,
  file: OpenFile,
  ranges: readonly DataRange[],
): AsyncGenerator<Buffer, boolean> {
  let isWhole = true;
  for (const { start, length } of ranges) {
    for (let done = 0; done < length; ) {
      const most = Math.min(out.room().length, length - done);
      const count = isWhole ? await file.read(out.room(), most, start + done).catch(() => 0) : 0;
      if (count === 0) isWhole = false;
      done += count > 0 ? count : out.zeros(most);
      out.advance(count);
      yield* out.takeFull();
    }
  }
  out.pad();
  return isWhole;
}
