import { Readable } from 'node:stream';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { about } from '../../linux/system/errno.ts';

/** Bytes of a file from `start` up to, excluding, `end`; null: to the end of the file. */
export interface ByteRange {
  readonly start: number;
  readonly end: number | null;
}

const CHUNK = 64 * 1024;

/**
 * Streams pieces of an open file in order, then closes it. Throws `aborted` if the file has been truncated: its length
 * was already sent, so the response must not end early.
 */
export class ContentStream extends Readable {
  readonly #file: OpenFile;
  readonly #pieces: (Buffer | ByteRange)[];
  readonly #path: string;

  /** `path`: in errors. */
  constructor(path: string, file: OpenFile, pieces: readonly (Buffer | ByteRange)[]) {
    super({ highWaterMark: CHUNK });
    this.#path = path;
    this.#file = file;
    this.#pieces = [...pieces];
  }

  override _read(): void {
    this.#next().then(
      (chunk) => this.push(chunk),
      (error) => this.destroy(error),
    );
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // Waits for a read in progress.
    this.#file.close().then(
      () => callback(error),
      (closing) => callback(error ?? closing),
    );
  }

  async #next(): Promise<Buffer | null> {
    const piece = this.#pieces.shift();
    if (!piece) return null;
    if (Buffer.isBuffer(piece)) return piece;
    const { start, end } = piece;
    if (start === end) return this.#next();

    const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK, (end ?? Number.MAX_SAFE_INTEGER) - start));
    const chunk = buffer.subarray(0, await about(this.#path, () => readChunk(this.#file, buffer, start)));
    if (chunk.length > 0) this.#pieces.unshift({ start: start + chunk.length, end });
    else if (end !== null) throw new EnvdError('aborted', 'file was truncated while it was read');
    return chunk.length > 0 ? chunk : this.#next();
  }
}

/** Reads at `position` into `buffer`; returns the number of bytes, 0 at the end. */
export async function readChunk(file: OpenFile, buffer: Buffer, position: number): Promise<number> {
  try {
    return await file.read(buffer, buffer.length, position);
  } catch (error) {
    // A file of /proc without data at present.
    if (isSystemError(error, 'EAGAIN')) return 0;
    throw error;
  }
}
