import { type BigIntStats, closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import type { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import { type BytePath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import { O_PATH } from '../../../linux/paths/open-flags.ts';

/** An entry of the tree. It is valid until the next one is asked for. */
export interface FoundEntry {
  /** The absolute path. */
  readonly path: BytePath;
  /** The path relative to the root. If the root is a file, it is the name of the file. */
  readonly relative: string;
  readonly shown: string;
  readonly status: BigIntStats;
  /** Returns the content of a regular file, or null if it has more than `limit` bytes. */
  read(limit: number): Buffer | null;
}

/** An entry that is open with O_PATH. */
export class OpenEntry implements FoundEntry, Disposable {
  readonly path: BytePath;
  readonly relative: string;
  readonly shown: string;
  readonly status: BigIntStats;
  readonly #descriptor: number;

  constructor(
    directory: DirectoryHandle,
    name: BytePath,
    { path, relative, shown }: Pick<FoundEntry, 'path' | 'relative' | 'shown'>,
  ) {
    this.path = path;
    this.relative = relative;
    this.shown = shown;
    this.#descriptor = openSync(pathBuffer(`${directory.path}/${name}`), O_PATH | constants.O_NOFOLLOW);
    this.status = fstatSync(this.#descriptor, { bigint: true });
  }

  read(limit: number): Buffer | null {
    if (this.status.size > limit) return null;
    const flags = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;
    const file = openSync(`/proc/self/fd/${this.#descriptor}`, flags);
    try {
      return readWhole(file, Number(this.status.size), limit);
    } finally {
      closeSync(file);
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}

/**
 * Returns the content, or null if it has more than `limit` bytes. It reads to the end, because files of /proc have the size 0
 * and some content.
 */
function readWhole(file: number, size: number, limit: number): Buffer | null {
  let buffer = Buffer.allocUnsafeSlow(Math.min(Math.max(size + 1, 4096), limit + 1));
  let length = 0;
  for (;;) {
    const count = readSync(file, buffer, length, buffer.length - length, length);
    length += count;
    if (count === 0) return buffer.subarray(0, length);
    if (length > limit) return null;
    if (length < buffer.length) continue;
    const larger = Buffer.allocUnsafeSlow(Math.min(2 * buffer.length, limit + 1));
    buffer.copy(larger);
    buffer = larger;
  }
}
