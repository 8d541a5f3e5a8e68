import {
  closeSync,
  constants,
  fchmodSync,
  ftruncateSync,
  futimesSync,
  openSync,
  readSync,
  writeSync,
} from 'node:fs';
import { Failure } from '../output/failure.ts';
import type { TreeItem } from './item.ts';
import { isZero } from './sparse-writer.ts';

/**
 * Files of at most this many bytes are read and written at once, by calls that do not return to the event loop: for each step of so
 * little work, the way to the pool of threads and back takes longer than the step.
 */
export const SMALL_BYTES = 256 * 1024;

/** Returns the first `size` bytes of a file. Throws `Failure` if there are fewer, and the errors of the file system. */
export function readSmall(path: string, size: number, name: string): Buffer {
  // A fifo that has replaced the file would wait for a writer.
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const content = Buffer.allocUnsafe(size);
    for (let length = 0; length < size; ) {
      const count = readSync(file, content, length, size - length, null);
      if (count === 0) throw new Failure('failed', `${name} has become shorter while it was read`);
      length += count;
    }
    return content;
  } finally {
    closeSync(file);
  }
}

/** Writes a new file with its mode and time. Throws the errors of the file system. */
export function writeSmall(path: string, content: Buffer, { mode, modified }: TreeItem): void {
  const file = openSync(path, 'wx', 0o600);
  try {
    if (isZero(content)) ftruncateSync(file, content.length);
    else
      for (let written = 0; written < content.length; )
        written += writeSync(file, content, written, content.length - written, written);
    fchmodSync(file, mode & 0o777);
    if (modified > 0) futimesSync(file, modified / 1000, modified / 1000);
  } finally {
    closeSync(file);
  }
}
