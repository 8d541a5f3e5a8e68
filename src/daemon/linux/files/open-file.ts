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
import { isSystemError } from '../../../base/errors.ts';
import { type Lane, openedLane, QUICK } from '../lanes/lane.ts';
import type { Lanes, RunOptions } from '../lanes/lanes.ts';

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

/** Owns the descriptor of an open file, and runs all calls in its lane. Throws the system calls' errors, and `NoAnswer`. */
export class OpenFile implements AsyncDisposable {
  readonly fd: number;
  readonly lane: Lane;
  readonly #lanes: Lanes;
  /** While these calls are in progress, the descriptor must stay open, because its number could be reused. */
  readonly #underWay = new Set<Promise<unknown>>();
  #closed: Promise<void> | null = null;

  constructor(descriptor: number, lanes: Lanes, lane: Lane) {
    this.fd = descriptor;
    this.lane = lane;
    this.#lanes = lanes;
  }

  stat(): Promise<Stats> {
    return this.run(() => statFile(this.fd));
  }

  /** Returns the status with 64-bit numbers. */
  exactStat(): Promise<BigIntStats> {
    return this.run(() => statFile(this.fd, { bigint: true }));
  }

  async read(buffer: Buffer, length: number, position: number): Promise<number> {
    return (await this.run(() => readFile(this.fd, buffer, 0, length, position))).bytesRead;
  }

  /** Writes at `position`, or at the current file offset if it is null. Returns the number of bytes written. */
  async writev(batch: readonly Buffer[], position: number | null): Promise<number> {
    return (await this.run(() => writeBuffers(this.fd, batch, position ?? undefined))).bytesWritten;
  }

  truncate(length: number): Promise<void> {
    return this.run(() => truncateFile(this.fd, length));
  }

  chmod(mode: number): Promise<void> {
    return this.run(() => changeMode(this.fd, mode));
  }

  chown(uid: number, gid: number): Promise<void> {
    return this.run(() => changeOwner(this.fd, uid, gid));
  }

  /** Runs a job that uses the descriptor, which stays open until it ends, in the lane of the file or in `lane`. */
  run<T>(job: () => Promise<T>, options?: RunOptions<T>, lane = this.lane): Promise<T> {
    return this.#lanes.run(lane, () => this.during(job()), options);
  }

  /** Runs a job that looks up something below the descriptor, perhaps on a mount that does not answer. */
  find<T>(
    job: () => Promise<T>,
    discard?: (late: T) => void,
  ): Promise<{ readonly value: T; readonly lane: Lane }> {
    return this.#lanes.find(() => this.during(job()), { base: this.lane, discard });
  }

  /** Returns the file that `open` opens below the descriptor with these flags. */
  async openOther(open: () => Promise<number>, flags: number): Promise<OpenFile> {
    const { value, lane } = await this.find(open, (late) => this.own(late, this.lane).discard());
    return this.own(value, openedLane(lane, flags));
  }

  /** Returns an owner for a descriptor that was opened below this one. */
  own(descriptor: number, lane: Lane): OpenFile {
    return new OpenFile(descriptor, this.#lanes, lane);
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
   * file, and mostly when its owner changes (chown(2)), but not when root writes to it.
   */
  async dropSetIdBits(): Promise<void> {
    const { mode } = await this.stat();
    if (mode & SET_ID) await this.chmod(mode & 0o7777 & ~SET_ID);
  }

  /** Flushes the file to storage, except pipes, devices and pseudo files, which do not support fsync(2) (EINVAL). */
  async sync(): Promise<void> {
    try {
      await this.run(() => syncFile(this.fd), { long: true });
    } catch (error) {
      if (!isSystemError(error, 'EINVAL', 'ENOTSUP', 'EROFS')) throw error;
    }
  }

  /**
   * Closes the descriptor once, after the calls in progress have returned. The promise does not wait for those calls,
   * because their caller has given up. On a mount that may not answer, close(2) itself asks the server, too.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  /** Closes the descriptor for a caller who has given up, and so does not learn of errors. */
  discard(): void {
    this.close().catch(() => {});
  }

  async #close(): Promise<void> {
    const isStuck = this.#underWay.size > 0;
    const closed = this.#closeAtLast();
    if (isStuck) closed.catch(() => {});
    else await (this.lane.mounts.length > 0 ? this.#lanes.inTime(closed) : closed);
  }

  async #closeAtLast(): Promise<void> {
    await Promise.allSettled(this.#underWay);
    // Closing a directory waits for no lock.
    const lane = this.lane.mounts.length > 0 ? this.lane : QUICK;
    await this.#lanes.runAtLast(lane, () => closeFile(this.fd));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
