import { constants } from 'node:fs';
import { readlink } from 'node:fs/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { DirectoryReader } from '../../linux/files/directory-reader.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { type BytePath, bytePath, displayPath } from '../../linux/paths/byte-path.ts';
import { type Mount, mountOf, readMounts } from '../../linux/paths/mounts.ts';
import { explain } from '../../linux/system/errno.ts';

/** These errors concern the daemon and not the entry, so the archive cannot go on. */
const EXHAUSTED = ['EMFILE', 'ENFILE', 'ENOMEM', 'ETIMEDOUT'];
/** These errors mean that an entry was removed, or replaced by another kind, after it was listed. */
const VANISHED = ['ENOENT', 'ENOTDIR', 'ELOOP', 'ESTALE'];

/**
 * The tree that an archive contains, whatever its format: its root, and the first entry that could not be read. A path below
 * the root begins with a slash; that of the root is empty.
 */
export class ArchivedTree implements AsyncDisposable {
  readonly root: DirectoryReader;
  readonly #shown: string;
  readonly #mounts: readonly Mount[] = readMounts();
  #failure: EnvdError | null = null;

  private constructor(root: DirectoryReader, shown: string) {
    this.root = root;
    this.#shown = shown;
  }

  /**
   * Opens the directory at an absolute path, which may be a symbolic link. Throws `not_found`, and `invalid_argument` for
   * what is no directory and for a file system of the kernel, whose files may have no end.
   */
  static async open(path: string, lanes: Lanes): Promise<ArchivedTree> {
    const tree = new ArchivedTree(await openRoot(path, lanes), path);
    if (!(await tree.isPseudo(tree.root))) return tree;
    await tree[Symbol.asyncDispose]();
    throw new EnvdError('invalid_argument', `path is a file system of the kernel: '${path}'`);
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.root[Symbol.asyncDispose]();
  }

  /** Returns null when the entry has vanished or cannot be read. The latter is noted as a failure. */
  async attempt<T>(path: BytePath, step: () => Promise<T>): Promise<T | null> {
    try {
      return await step();
    } catch (error) {
      if (isSystemError(error, ...EXHAUSTED)) throw explain(error, this.#shownPath(path));
      if (!isSystemError(error, ...VANISHED)) this.fail(path, 'entry could not be read', error);
      return null;
    }
  }

  /** Notes that the archive lacks something. The first failure counts. */
  fail(path: BytePath, problem: string, cause?: unknown): void {
    const message = `archive is incomplete: ${problem}: '${this.#shownPath(path)}'`;
    this.#failure ??= new EnvdError('aborted', message, { cause });
  }

  /** Throws the first failure, if there was one. Call it at the end of the archive. */
  throwIfIncomplete(): void {
    if (this.#failure) throw this.#failure;
  }

  /** Returns whether a directory is on a file system of the kernel (proc, sysfs, …). */
  async isPseudo({ file }: DirectoryReader): Promise<boolean> {
    const path = bytePath(await readlink(`/proc/self/fd/${file.fd}`, { encoding: 'buffer' }));
    return mountOf(this.#mounts, path)?.kind === 'pseudo';
  }

  #shownPath(path: BytePath): string {
    return `${this.#shown === '/' ? '' : this.#shown}${displayPath(path)}`;
  }
}

async function openRoot(path: string, lanes: Lanes): Promise<DirectoryReader> {
  try {
    using place = await PathHandle.open(path, true, lanes);
    const flags = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NONBLOCK;
    return new DirectoryReader(await place.openFile(flags), place.owner);
  } catch (error) {
    if (isSystemError(error, 'ENOTDIR'))
      throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
    throw explain(error, path);
  }
}
