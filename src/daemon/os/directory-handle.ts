import { closeSync, constants, openSync } from 'node:fs';
import { type BytePath, pathBuffer } from './byte-path.ts';
import { native } from './native.ts';

const FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** Names in a directory. */
export interface Names {
  readonly directories: readonly BytePath[];
  readonly others: readonly BytePath[];
}

/** A directory held by a descriptor: its path leads to the same one, wherever it is moved. */
export class DirectoryHandle implements Disposable {
  readonly #descriptor: number;
  /** Of the directory, and not a link to it. */
  readonly path: BytePath;

  /** Throws open(2)'s errors, ENOTDIR for a link. */
  constructor(path: BytePath) {
    this.#descriptor = openSync(pathBuffer(path), FLAGS);
    this.path = `/proc/self/fd/${this.#descriptor}/.`;
  }

  /** Its entries, once; of those that are no directories only if asked for. Throws getdents(2)'s errors. */
  names(withOthers: boolean): Names {
    return native.listNames(this.#descriptor, withOthers);
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}
