import { closeSync, constants, type Dirent, openSync, readdirSync } from 'node:fs';
import { type BytePath, pathBuffer } from './byte-path.ts';

/** O_PATH of asm-generic/fcntl.h, which Node does not name. */
const O_PATH = 0o10000000;

/** A directory held by a descriptor: its paths lead to the same one, wherever it is moved. Source: open(2), O_PATH. */
export class DirectoryHandle implements Disposable {
  readonly #descriptor: number;
  /** Of the directory, and not a link to it. */
  readonly path: BytePath;

  /** Throws open(2)'s errors, ENOTDIR for a link. */
  constructor(path: BytePath) {
    const flags = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    this.#descriptor = openSync(pathBuffer(path), flags);
    this.path = `/proc/self/fd/${this.#descriptor}/.`;
  }

  /** Names and types. Throws readdir(3)'s errors. */
  entries(): Dirent<BytePath>[] {
    return readdirSync(this.path, { withFileTypes: true, encoding: 'latin1' });
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}
