import { closeSync, fstatSync, ftruncateSync, readSync, writeSync } from 'node:fs';
import { isSystemError } from '../../base/errors.ts';
import { native } from './native.ts';

/** Memory outside of V8's heap. It belongs to a descriptor, which another program can take over. */
export interface SharedMemory {
  /** Null: the memory cannot be handed over, as the kernel refused a descriptor or the mapping. */
  readonly descriptor: number | null;
  readonly bytes: Buffer;
}

/** `size` zero bytes; they take no memory until they are written. */
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

/** A file in memory with this content; returns its descriptor. Throws the errors of memfd_create(2) and write(2). */
export function fileWith(content: Buffer): number {
  const file = native.createMemory();
  for (let written = 0; written < content.length; ) written += writeSync(file, content, written);
  return file;
}

/** The content of a file in memory. Throws read(2)'s errors. */
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
