import parseRange from 'range-parser';
import { uniqueId } from '../../../linux/system/unique-id.ts';
import type { ByteRange } from '../../../services/files/content.ts';

/** A part of a file of known size. `end` is exclusive. */
export interface Range extends ByteRange {
  readonly end: number;
}

/**
 * Returns the ranges of a Range header, in its order. Returns an empty list when no range is in the file, and null when the header is
 * absent, malformed or in another unit, so that it is ignored. Overlapping ranges are merged if their sum exceeds the size of the
 * file. Source: RFC 9110, section 14.2.
 */
export function selectRanges(header: string | undefined, size: number): readonly Range[] | null {
  if (header === undefined) return null;
  const wanted = clampSuffixes(header, size);
  const ranges = parseRange(size, wanted);
  if (ranges === -2) return null;
  if (ranges === -1) return isBytes(wanted) ? [] : null;
  if (ranges.type.trim().toLowerCase() !== 'bytes') return null;
  const total = ranges.reduce((sum, { start, end }) => sum + end - start + 1, 0);
  const chosen = total > size ? parseRange(size, wanted, { combine: true }) : ranges;
  if (!Array.isArray(chosen)) return null;
  return chosen.map(({ start, end }) => ({ start, end: end + 1 }));
}

/** Shortens suffixes `-n` to the size of the file: they then mean the whole file, but range-parser would refuse longer ones. */
function clampSuffixes(header: string, size: number): string {
  return header.replace(/(?<=[=,]\s*)-(\d+)/g, (_, length: string) => `-${Math.min(Number(length), size)}`);
}

function isBytes(header: string): boolean {
  return /^\s*bytes\s*=/i.test(header);
}

/** A multipart/byteranges body. Source: RFC 9110, section 14.6. */
export interface MultipartRanges {
  readonly contentType: string;
  /** The length of the body, in bytes. */
  readonly length: number;
  readonly pieces: readonly (Buffer | Range)[];
}

export function contentRange({ start, end }: Range, size: number): string {
  return `bytes ${start}-${end - 1}/${size}`;
}

export function multipartRanges(ranges: readonly Range[], type: string, size: number): MultipartRanges {
  const boundary = uniqueId();
  const pieces = ranges.flatMap((range) => [
    Buffer.from(
      `\r\n--${boundary}\r\nContent-Type: ${type}\r\nContent-Range: ${contentRange(range, size)}\r\n\r\n`,
    ),
    range,
  ]);
  const all = [...pieces, Buffer.from(`\r\n--${boundary}--\r\n`)];
  const length = all.reduce((sum, piece) => sum + lengthOf(piece), 0);
  return { contentType: `multipart/byteranges; boundary=${boundary}`, length, pieces: all };
}

function lengthOf(piece: Buffer | Range): number {
  return Buffer.isBuffer(piece) ? piece.length : piece.end - piece.start;
}
