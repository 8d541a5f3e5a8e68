import { closeSync, constants, fstatSync, type Stats } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import { type BytePath, pathBuffer } from '../paths/byte-path.ts';
import { O_PATH } from '../paths/open-flags.ts';
import { native } from '../system/native.ts';

/** fcntl.h defines this number, which Node does not name. */
const AT_FDCWD = -100;

/** Offsets in a `struct linux_dirent64`. Source: getdents64(2). */
const [RECORD_LENGTH, TYPE, NAME] = [16, 18, 19];
const [DT_UNKNOWN, DT_DIR] = [0, 4];

export interface DirectoryNames {
  readonly directories: readonly BytePath[];
  readonly others: readonly BytePath[];
}

/** `locate` accesses only the path and allows no reading of names (O_PATH). */
export type Access = 'locate' | 'read';

export interface Opening {
  readonly access: Access;
  /** The permissions of this user apply, or those of the daemon if it is null. */
  readonly owner: number | null;
  /** Mount points on the path are entered if this is true. Otherwise they cause EXDEV. */
  readonly crosses: boolean;
}

/** An open directory. No symbolic link is followed on the way to it: one causes ELOOP or ENOTDIR. */
export class DirectoryHandle implements Disposable {
  readonly #descriptor: number;
  /** This path refers to the directory itself, wherever it is moved. */
  readonly path: BytePath;

  private constructor(descriptor: number) {
    this.#descriptor = descriptor;
    this.path = `/proc/self/fd/${descriptor}/.`;
  }

  /** Opens an absolute path. Throws open(2)'s errors. */
  static open(path: BytePath, access: Access, owner: number | null): DirectoryHandle {
    return new DirectoryHandle(open(AT_FDCWD, path, { access, owner, crosses: true }));
  }

  /** Opens a relative path. Throws open(2)'s errors. */
  below(path: BytePath, how: Opening): DirectoryHandle {
    return new DirectoryHandle(open(this.#descriptor, path, how));
  }

  /** Reads the next names, about a thousand, or returns null at the end. Without `withOthers` it omits other files. */
  nextNames(withOthers: boolean): DirectoryNames | null {
    const batch = native.nextNames(this.#descriptor);
    if (!batch) return null;
    const names = { directories: [] as BytePath[], others: [] as BytePath[] };
    for (let at = 0; at < batch.length; at += batch.readUInt16LE(at + RECORD_LENGTH)) {
      const type = batch[at + TYPE];
      if (!withOthers && type !== DT_DIR && type !== DT_UNKNOWN) continue;
      const name = batch.toString('latin1', at + NAME, batch.indexOf(0, at + NAME));
      if (name === '.' || name === '..') continue;
      const isDirectory = type === DT_DIR || (type === DT_UNKNOWN && this.kindOf(name) === 'directory');
      if (isDirectory) names.directories.push(name);
      else if (withOthers) names.others.push(name);
    }
    return names;
  }

  /** Returns what has this name, or null. A mount point counts as a directory and is not accessed. */
  kindOf(name: BytePath): 'directory' | 'other' | null {
    try {
      return this.#statusOf(name).isDirectory() ? 'directory' : 'other';
    } catch (error) {
      return isSystemError(error, 'EXDEV') ? 'directory' : null;
    }
  }

  /**
   * Returns when the file with this name was modified, in milliseconds since the epoch. Returns null if there is none,
   * or if the name is a mount point, which is not accessed.
   */
  modifiedMsOf(name: BytePath): number | null {
    try {
      return this.#statusOf(name).mtimeMs;
    } catch {
      return null;
    }
  }

  #statusOf(name: BytePath): Stats {
    const descriptor = native.openBelow(this.#descriptor, pathBuffer(name), O_PATH, false, null);
    try {
      return fstatSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  }

  [Symbol.dispose](): void {
    closeSync(this.#descriptor);
  }
}

function open(directory: number, path: BytePath, { access, owner, crosses }: Opening): number {
  const flags = (access === 'read' ? constants.O_RDONLY : O_PATH) | constants.O_DIRECTORY;
  return native.openBelow(directory, pathBuffer(path), flags, crosses, owner);
}
