import type { DataRange } from '../../../../linux/files/directory-reader.ts';
import type { OpenFile } from '../../../../linux/files/open-file.ts';
import type { BytePath } from '../../../../linux/paths/byte-path.ts';
import { BLOCK, type BlockWriter } from '../format/block-writer.ts';
import type { PaxRecord } from '../format/header-writer.ts';

/** Describes how a regular file is stored in an archive. */
export interface FileLayout {
  /** This is the name in the header. */
  readonly name: BytePath;
  readonly records: readonly PaxRecord[];
  /** This is stored before the content, unless it is null. */
  readonly before: Buffer | null;
  /** These parts of the content are stored. */
  readonly ranges: readonly DataRange[];
  /** This many bytes are stored in all. */
  readonly stored: number;
}

/** Returns the layout of a file of `size` bytes. `map` has the ranges that hold data. It is null if all of it does. */
export function layoutOf(name: BytePath, size: number, map: readonly DataRange[] | null): FileLayout {
  if (!map) return { name, records: [], before: null, ranges: [{ start: 0, length: size }], stored: size };
  // The file may have been truncated since.
  const ranges = map
    .filter(({ start }) => start < size)
    .map(({ start, length }) => ({ start, length: Math.min(length, size - start) }));
  return sparseLayout(name, size, ranges);
}

/**
 * Returns the layout of GNU tar's sparse format, version 1.0. The map of ranges precedes the content. It has decimal
 * numbers, one per line: the count of ranges, then start and length of each. Source: GNU tar's manual, "Storing Sparse
 * Files".
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
 * be read. The rest of it is then zeros, so that the archive stays well-formed.
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
