import { closeSync, fstatSync, ftruncateSync, readSync, writeSync } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';

/** Memory outside of V8's heap. It belongs to a descriptor, which another program can take over. */
export interface SharedMemory {
  /** The descriptor; null when the kernel refused it or the mapping, so that the memory cannot be handed over. */
  readonly descriptor: number | null;
  readonly bytes: Buffer;
}

/** How many bytes are read at once. */
const PIECE_BYTES = 256 * 1024;

/** Creates memory of `size` zero bytes, which take no room until they are written. */
export function createMemory(size: number): SharedMemory {
  try {
    const descriptor = native.createMemory();
    ftruncateSync(descriptor, size);
    return mapped(descriptor, size);
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return { descriptor: null, bytes: Buffer.alloc(size) };
  }
}

/**
 * Creates a file in memory with these pieces; returns its descriptor. Throws the errors of memfd_create(2), write(2) and
 * `pieces`.
 */
export function fileWith(pieces: Iterable<Buffer>): number {
  const file = native.createMemory();
  try {
    for (const piece of pieces)
      for (let written = 0; written < piece.length; ) written += writeSync(file, piece, written);
    return file;
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

/** Yields the lines of a file in memory. Throws read(2)'s errors. */
export function* linesOf(file: number): Generator<string> {
  const piece = Buffer.alloc(PIECE_BYTES);
  const begun: Buffer[] = [];
  for (let at = 0, count = -1; count !== 0; at += count) {
    count = readSync(file, piece, 0, PIECE_BYTES, at);
    let start = 0;
    for (let end = piece.indexOf('\n'); end >= 0 && end < count; end = piece.indexOf('\n', start)) {
      yield Buffer.concat([...begun.splice(0), piece.subarray(start, end)]).toString();
      start = end + 1;
    }
    if (start < count) begun.push(Buffer.from(piece.subarray(start, count)));
  }
  if (begun.length > 0) yield Buffer.concat(begun).toString();
}

/** Returns the content of a file in memory. Throws read(2)'s errors. */
export function contentOf(file: number): Buffer {
  const bytes = Buffer.alloc(fstatSync(file).size);
  readMemory(file, bytes, 0, bytes.length);
  return bytes;
}

/** Reads a part of a file in memory to the same place in `bytes`. Throws read(2)'s errors. */
export function readMemory(descriptor: number, bytes: Buffer, start: number, end: number): void {
  for (let at = start; at < end; ) {
    const count = readSync(descriptor, bytes, at, end - at, at);
    if (count === 0) return;
    at += count;
  }
}

/** Zeroes the bytes from `start` on and returns their memory to the kernel. */
export function releaseTail({ descriptor, bytes }: SharedMemory, start: number): void {
  if (descriptor === null) return;
  ftruncateSync(descriptor, start);
  ftruncateSync(descriptor, bytes.length);
}

function mapped(descriptor: number, size: number): SharedMemory {
  try {
    return { descriptor, bytes: native.mapMemory(descriptor, size) };
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
}
