import type { FileHandle } from 'node:fs/promises';
import { Writable } from 'node:stream';

/** So many bytes are taken while earlier ones are being written, and are then written together. */
const COLLECTED = 1024 * 1024;

/**
 * Writes a file from a byte on, and closes it. Pieces of nothing but zeros become holes, so that a sparse file does not fill the disk
 * with zeros. The file must have nothing behind that byte.
 */
export function sparseWriter(file: FileHandle, from = 0): Writable {
  let end = from;
  const store = async (pieces: readonly Buffer[]) => {
    let at = end;
    let together: Buffer[] = [];
    const flush = async () => {
      await writeAll(file, together, at);
      together = [];
      at = end;
    };
    for (const piece of pieces) {
      const isHole = isZero(piece);
      if (isHole) await flush();
      else together.push(piece);
      end += piece.length;
      if (isHole) at = end;
    }
    await flush();
  };
  return new Writable({
    highWaterMark: COLLECTED,
    write: (piece: Buffer, _encoding, done) => void store([piece]).then(() => done(), done),
    writev: (chunks, done) => void store(chunks.map(({ chunk }) => chunk)).then(() => done(), done),
    // A hole at the end has no byte behind it.
    final: (done) => void file.truncate(end).then(() => done(), done),
    destroy: (error, done) =>
      void file.close().then(
        () => done(error),
        () => done(error),
      ),
  });
}

/** Writes pieces one behind the other, from a byte on. */
async function writeAll(file: FileHandle, pieces: readonly Buffer[], from: number): Promise<void> {
  let rest = [...pieces];
  for (let at = from; rest.length > 0; ) {
    const { bytesWritten } = await file.writev(rest, at);
    at += bytesWritten;
    let left = bytesWritten;
    while (rest[0] && left >= rest[0].length) left -= rest.shift()?.length ?? 0;
    if (rest[0] && left > 0) rest = [rest[0].subarray(left), ...rest.slice(1)];
  }
}

/** Returns whether a piece has nothing but zeros: it begins with one, and each byte equals the next. */
export function isZero(piece: Buffer): boolean {
  return piece[0] === 0 && piece.subarray(1).equals(piece.subarray(0, -1));
}
