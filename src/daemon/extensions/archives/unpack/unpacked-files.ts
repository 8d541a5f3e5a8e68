import { hash } from 'node:crypto';
import { type BytePath, pathBuffer } from '../../../linux/paths/byte-path.ts';

/** The names are in this many sets, so that the growth of one takes a small part of a turn of the event loop. */
const SETS = 256;

/** Remembers the names of the files that were unpacked, by 48 bits of a digest of each, so that long names cost no more memory. */
export class UnpackedFiles {
  readonly #sets = Array.from({ length: SETS }, () => new Set<number>());

  add(name: BytePath): void {
    const key = keyOf(name);
    this.#sets[key % SETS]?.add(key);
  }

  has(name: BytePath): boolean {
    const key = keyOf(name);
    return this.#sets[key % SETS]?.has(key) ?? false;
  }
}

function keyOf(name: BytePath): number {
  return hash('sha256', pathBuffer(name), 'buffer').readUIntBE(0, 6);
}
