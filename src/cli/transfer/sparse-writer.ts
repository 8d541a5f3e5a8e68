import type { FileHandle } from 'node:fs/promises';
import { Writable } from 'node:stream';

/** Longer pieces than this come from no source. */
const LONGEST = 256 * 1024;

/**
 * Writes a file from a byte on, and closes it. Pieces of nothing but zeros become holes, so that a sparse file does not fill the disk
 * with zeros. The file must have nothing behind that byte.
 */
export function sparseWriter(file: FileHandle, from = 0): Writable {
  const zeros = Buffer.alloc(LONGEST);
  let end = from;
  const store = async (piece: Buffer) => {
    const at = end;
    end += piece.length;
    if (piece.length <= LONGEST && piece.equals(zeros.subarray(0, piece.length))) return;
    for (let written = 0; written < piece.length; ) {
      const { bytesWritten } = await file.write(piece, written, piece.length - written, at + written);
      written += bytesWritten;
    }
  };
  return new Writable({
    write: (piece: Buffer, _encoding, done) => void store(piece).then(() => done(), done),
    // A hole at the end has no byte behind it.
    final: (done) => void file.truncate(end).then(() => done(), done),
    destroy: (error, done) =>
      void file.close().then(
        () => done(error),
        () => done(error),
      ),
  });
}
