import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { explaining } from '../../linux/system/errno.ts';

/** Describes bytes of a file, from `start` to before `end`. If `end` is null, they go to the end of the file. */
export interface ByteRange {
  readonly start: number;
  readonly end: number | null;
}

const CHUNK = 64 * 1024;

/**
 * Reads the pieces of an open file in order, in chunks that belong to the reader. `path` names the file in errors.
 * Throws `aborted` if the file was truncated: its length was already sent, so the response must not end early.
 */
export async function* readPieces(
  path: string,
  file: OpenFile,
  pieces: readonly (Buffer | ByteRange)[],
): AsyncGenerator<Buffer> {
  for (const piece of pieces) {
    if (Buffer.isBuffer(piece)) {
      yield piece;
      continue;
    }
    const end = piece.end ?? Number.MAX_SAFE_INTEGER;
    for (let position = piece.start; position < end; ) {
      const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK, end - position));
      const length = await explaining(path, () => readChunk(file, buffer, position));
      if (length === 0 && piece.end === null) break;
      if (length === 0) throw new EnvdError('aborted', 'file was truncated while it was read');
      position += length;
      yield buffer.subarray(0, length);
    }
  }
}

/** Reads at `position` into `buffer`. Returns the number of bytes, which is 0 at the end. */
export async function readChunk(file: OpenFile, buffer: Buffer, position: number): Promise<number> {
  try {
    return await file.read(buffer, buffer.length, position);
  } catch (error) {
    // A file of /proc may have no data at present.
    if (isSystemError(error, 'EAGAIN')) return 0;
    throw error;
  }
}
