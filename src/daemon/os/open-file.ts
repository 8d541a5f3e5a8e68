import {
  type BigIntStats,
  close,
  fchmod,
  fchown,
  fstat,
  fsync,
  ftruncate,
  read,
  type Stats,
  writev,
} from 'node:fs';
import { promisify } from 'node:util';
import { isSystemError } from '../../base/errors.ts';

const closeFile = promisify(close);
const changeMode = promisify(fchmod);
const changeOwner = promisify(fchown);
const syncFile = promisify(fsync);
const truncateFile = promisify(ftruncate);
const readFile = promisify(read);
const writeBuffers = promisify(writev);
const statFile = promisify(fstat);

/** S_ISUID and S_ISGID of inode(7). */
const SET_ID = 0o6000;

/** An open file, owner of its descriptor. Methods throw the system calls' errors. */
export class OpenFile implements AsyncDisposable {
  readonly fd: number;
  /** Calls in progress: the descriptor must not be closed, and its number reused, before they return. */
  readonly #underWay = new Set<Promise<unknown>>();
  #closed: Promise<void> | null = null;

  constructor(descriptor: number) {
    this.fd = descriptor;
  }

  stat(): Promise<Stats> {
    return this.during(statFile(this.fd));
  }

  /** With 64-bit numbers. */
  exactStat(): Promise<BigIntStats> {
    return this.during(statFile(this.fd, { bigint: true }));
  }

  async read(buffer: Buffer, length: number, position: number): Promise<number> {
    return (await this.during(readFile(this.fd, buffer, 0, length, position))).bytesRead;
  }

  /** Writes at `position`, or at the current file offset if null; returns the bytes written. */
  async writev(batch: readonly Buffer[], position: number | null): Promise<number> {
    return (await this.during(writeBuffers(this.fd, batch, position ?? undefined))).bytesWritten;
  }

  truncate(length: number): Promise<void> {
    return this.during(truncateFile(this.fd, length));
  }

  chmod(mode: number): Promise<void> {
    return this.during(changeMode(this.fd, mode));
  }

  chown(uid: number, gid: number): Promise<void> {
    return this.during(changeOwner(this.fd, uid, gid));
  }

  /** Keeps the descriptor open until `call`, which uses it, has settled. */
  async during<T>(call: Promise<T>): Promise<T> {
    this.#underWay.add(call);
    try {
      return await call;
    } finally {
      this.#underWay.delete(call);
    }
  }

  /**
   * Clears the set-user-ID and set-group-ID bits. The kernel clears them when an unprivileged process writes to the
   * file and, with one exception, when its owner changes (chown(2)), but not when root writes to it.
   */
  async dropSetIdBits(): Promise<void> {
    const { mode } = await this.stat();
    if (mode & SET_ID) await this.chmod(mode & 0o7777 & ~SET_ID);
  }

  /**
   * Flushes the file to storage. Pipes, devices and pseudo files do not support fsync(2) (EINVAL), which is not an
   * error.
   */
  async sync(): Promise<void> {
    try {
      await this.during(syncFile(this.fd));
    } catch (error) {
      if (!isSystemError(error, 'EINVAL', 'ENOTSUP', 'EROFS')) throw error;
    }
  }

  /** Closes the descriptor once, after the calls in progress have returned. */
  close(): Promise<void> {
    this.#closed ??= Promise.allSettled(this.#underWay).then(() => closeFile(this.fd));
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
