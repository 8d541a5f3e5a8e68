import { randomBytes } from 'node:crypto';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isSystemError } from '../../../base/errors.ts';
import { native } from '../../os/native.ts';
import { ensureDirectory } from '../../os/paths.ts';
import { openUnnamed } from '../../os/unnamed-file.ts';
import type { User } from '../../os/users.ts';
import { writeFully } from '../../os/write-fully.ts';
import { syncFile } from './durability.ts';

/** Moves content that has arrived to an open file at a position, past JavaScript; resolves with the bytes moved. */
export type Move = (descriptor: number, position: number) => Promise<number>;

/**
 * Content that has no name yet: nobody sees it, and it is gone with its descriptor, however the daemon ends.
 * `commit` and `replaceFile` make it a file.
 */
export class StagedFile implements AsyncDisposable {
  readonly #file: FileHandle;
  /** A name for the time being, which goes when it was not moved to its final one. */
  #temporary: string | null;
  #size = 0;

  private constructor(file: FileHandle, temporary: string | null) {
    this.#file = file;
    this.#temporary = temporary;
  }

  /**
   * Stages what is to become `destination`, in its directory or, while that is missing, in the nearest one above.
   * Null where the file system cannot.
   */
  static async open(destination: string): Promise<StagedFile | null> {
    const file = await openNear(dirname(destination));
    return file && new StagedFile(file, null);
  }

  /** The same under a temporary name, for file systems that know no files without one. */
  static async openNamed(destination: string, user: User): Promise<StagedFile> {
    await ensureDirectory(dirname(destination), user);
    const temporary = temporaryName(destination);
    return new StagedFile(await open(temporary, 'wx+', 0o666), temporary);
  }

  get descriptor(): number {
    return this.#file.fd;
  }

  /** Bytes written so far. */
  get size(): number {
    return this.#size;
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    await writeFully(this.#file, batch, this.#size, signal);
    for (const piece of batch) this.#size += piece.length;
  }

  /** Appends what has arrived. */
  async take(piece: Buffer | Move, signal: AbortSignal): Promise<void> {
    if (typeof piece === 'function') this.#size += await piece(this.#file.fd, this.#size);
    else await this.write([piece], signal);
  }

  /** Appends the whole content of an open file. */
  async append(source: FileHandle): Promise<void> {
    this.#size += await native.copyRange(source.fd, this.#file.fd, this.#size, Number.MAX_SAFE_INTEGER);
  }

  /** All of it, for content that fits into memory. */
  async read(): Promise<Buffer> {
    const content = Buffer.alloc(this.#size);
    const { bytesRead } = await this.#file.read(content, 0, this.#size, 0);
    return content.subarray(0, bytesRead);
  }

  /** Writes the content over the start of an open file. */
  async copyTo(target: FileHandle): Promise<void> {
    await native.copyRange(this.#file.fd, target.fd, 0, this.#size);
  }

  /** Waits until the storage has the content. */
  async sync(): Promise<void> {
    await syncFile(this.#file);
  }

  async setMode(mode: number): Promise<void> {
    await this.#file.chmod(mode);
  }

  /** Names it `path`; fails with EEXIST when that is taken. */
  async publish(path: string, user: User): Promise<void> {
    if (this.#temporary) await this.moveOver(path, user);
    else await native.publishFile(this.descriptor, path, user.uid, user.gid);
  }

  /** Names it `path` in place of what has this name. */
  async moveOver(path: string, user: User): Promise<void> {
    if (this.#temporary) {
      await this.#file.chown(user.uid, user.gid);
    } else {
      const temporary = temporaryName(path);
      await native.publishFile(this.descriptor, temporary, user.uid, user.gid);
      this.#temporary = temporary;
    }
    await rename(this.#temporary, path);
    this.#temporary = null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
    if (this.#temporary) await rm(this.#temporary, { force: true });
  }
}

/** Beside the file, so that a rename can replace it; short, whatever the length of its name. */
function temporaryName(path: string): string {
  return join(dirname(path), `.envd-${randomBytes(8).toString('hex')}`);
}

async function openNear(directory: string): Promise<FileHandle | null> {
  try {
    return await openUnnamed(directory);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT') || dirname(directory) === directory) throw error;
    return openNear(dirname(directory));
  }
}
