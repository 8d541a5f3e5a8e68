import { randomUUID } from 'node:crypto';
import type { Range } from './ranges.ts';

/** A body of several ranges: multipart/byteranges, RFC 9110, section 14.6. */
export interface MultipartRanges {
  readonly contentType: string;
  /** Bytes of the body. */
  readonly length: number;
  readonly pieces: readonly (Buffer | Range)[];
}

export function contentRange({ start, end }: Range, size: number): string {
  return `bytes ${start}-${end - 1}/${size}`;
}

export function multipartRanges(ranges: readonly Range[], type: string, size: number): MultipartRanges {
  const boundary = randomUUID();
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
