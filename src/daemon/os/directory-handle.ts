import { closeSync, constants, openSync } from 'node:fs';
import { type BytePath, pathBuffer } from './byte-path.ts';
import { native } from './native.ts';

const FLAGS = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

/** The names in a directory. */
export interface Names {
  readonly directories: readonly BytePath[];
  readonly others: readonly BytePath[];
}

/** An open directory, whose path stays valid when the directory is moved. */
export class DirectoryHandle implements Disposable {
  readonly #descriptor: number;
  /** Refers to the directory itself, not to a symbolic link. */
  readonly path: BytePath;

  /** Throws open(2)'s errors; ENOTDIR for a symbolic link. */
  constructor(path: BytePath) {
    this.#descriptor = openSync(pathBuffer(path), FLAGS);
    this.path = `/proc/self/fd/${this.#descriptor}/.`;
  }

  /** Reads its names, once; without `withOthers` only directories. Throws getdents(2)'s errors. */
  names(withOthers: boolean): Names {
    return native.listNames(this.#descriptor, withOthers);
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}
