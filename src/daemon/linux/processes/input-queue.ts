import { closeSync, writeSync } from 'node:fs';
import { onAbort } from '../../../base/abort.ts';
import { isSystemError } from '../../../base/errors.ts';
import { awaitReady } from '../system/readiness.ts';
import { guarded } from './guarded.ts';

/** The queue holds this many bytes, besides the kernel's buffer. */
const QUEUE_BYTES = 1024 * 1024;
/** At most this many bytes are written per turn of the event loop, however fast the program reads. */
const TURN_BYTES = 1024 * 1024;
/** Pieces are joined up to this size, in bytes, because each takes some hundred. */
const JOINED_BYTES = 1024;
/** When no descriptor is left to wait with, writes are attempted at this interval, in milliseconds. */
const RETRY_MS = 50;

interface Waiting {
  /** What has not been accepted yet. */
  bytes: Uint8Array;
  readonly settle: (isAccepted: boolean) => void;
}

/**
 * The input of a process in a bounded queue in front of a non-blocking pipe or terminal. It accepts writes in the order of the calls,
 * and they wait while it is full. So a process that does not read delays only its own writers. A stream of Node would block the event
 * loop: libuv writes in a busy loop to a terminal that it cannot reopen. It does not say which bytes were written, either.
 */
export class InputQueue {
  readonly #descriptor: number;
  readonly #owns: boolean;
  readonly #cgroup: string | null;
  /** These pieces are accepted and not completely written. */
  readonly #accepted: Uint8Array[] = [];
  /** The kernel has taken this many bytes of the first accepted piece. */
  #taken = 0;
  /** All accepted pieces have this many bytes. A piece counts until all of it has been written. */
  #length = 0;
  readonly #waiting: Waiting[] = [];
  /** While it is `ending`, the queue accepts nothing more, and it is closed when everything has been written. */
  #phase: 'open' | 'ending' | 'closed' = 'open';
  readonly #closed = Promise.withResolvers<void>();
  /** Ends the wait for the kernel. It is null while nothing waits. */
  #cancel: (() => void) | null = null;

  /** `owns` says whether the queue closes the descriptor. `cgroup` is that of the process, or null if it is unknown. */
  constructor(descriptor: number, owns: boolean, cgroup: string | null) {
    this.#descriptor = descriptor;
    this.#owns = owns;
    this.#cgroup = cgroup;
  }

  /** Tells whether the queue accepts input. */
  get isOpen(): boolean {
    return this.#phase === 'open';
  }

  /** Returns the descriptor, or null when it is closed. */
  get descriptor(): number | null {
    return this.#phase === 'closed' ? null : this.#descriptor;
  }

  /** Resolves when the queue has been closed. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  /** Returns the accepted bytes that have not been written. */
  get unwritten(): Buffer {
    return Buffer.concat(this.#accepted).subarray(this.#taken);
  }

  /**
   * Resolves with true when the queue has accepted the bytes, and with false when it is closed or nobody reads any more. Throws the
   * reason of `signal` when that aborts; the write is then not accepted, or not whole if it is longer than the queue.
   */
  write(bytes: Uint8Array, signal: AbortSignal): Promise<boolean> {
    signal.throwIfAborted();
    if (this.#phase !== 'open') return Promise.resolve(false);
    const hasRoom = this.#waiting.length === 0 && this.#length < QUEUE_BYTES;
    if (hasRoom && bytes.length <= QUEUE_BYTES) return Promise.resolve(this.accept(bytes));
    const accepted = this.#wait(bytes, signal);
    if (this.#cancel === null) this.#pump();
    return accepted;
  }

  /** Accepts bytes even if the queue is full. Returns false when nobody reads any more. */
  accept(bytes: Uint8Array): boolean {
    this.#push(bytes);
    if (this.#cancel === null) this.#pump();
    return this.#phase !== 'closed';
  }

  /** Closes the queue after the accepted writes, and refuses waiting ones. Further calls have no effect. */
  end(): void {
    if (this.#phase !== 'open') return;
    this.#phase = 'ending';
    this.#refuseWaiting();
    if (this.#accepted.length === 0) this.destroy();
  }

  /** Closes the queue at once, and drops what has not been written. */
  destroy(): void {
    if (this.#phase === 'closed') return;
    this.#phase = 'closed';
    this.#cancel?.();
    this.#accepted.length = this.#taken = this.#length = 0;
    this.#refuseWaiting();
    if (this.#owns) guarded(this.#cgroup, () => closeSync(this.#descriptor));
    this.#closed.resolve();
  }

  #wait(bytes: Uint8Array, signal: AbortSignal): Promise<boolean> {
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const waiting = { bytes, settle: resolve };
    this.#waiting.push(waiting);
    const forget = onAbort(signal, () => {
      const index = this.#waiting.indexOf(waiting);
      // A write that no longer waits has been accepted or refused.
      if (index >= 0) this.#waiting.splice(index, 1);
      reject(signal.reason);
    });
    return promise.finally(forget);
  }

  #refuseWaiting(): void {
    for (const { settle } of this.#waiting.splice(0)) settle(false);
  }

  #push(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#length += bytes.length;
    const last = this.#accepted.at(-1);
    const joins = last && last.length + bytes.length <= JOINED_BYTES;
    if (joins) this.#accepted.splice(-1, 1, Buffer.concat([last, bytes]));
    // A part would keep the whole message.
    else this.#accepted.push(bytes.buffer.byteLength > 2 * bytes.length ? new Uint8Array(bytes) : bytes);
  }

  readonly #pump = (): void => {
    this.#cancel = null;
    try {
      this.#writeSome();
    } catch (error) {
      if (!isSystemError(error)) throw error;
      // EPIPE and EIO mean that the process has closed its input or has ended.
      if (error.code !== 'EAGAIN') this.destroy();
    }
    while (this.#length < QUEUE_BYTES) {
      const [next] = this.#waiting;
      if (!next) break;
      this.#push(next.bytes.subarray(0, QUEUE_BYTES));
      next.bytes = next.bytes.subarray(QUEUE_BYTES);
      if (next.bytes.length === 0) this.#waiting.shift()?.settle(true);
    }
    if (this.#accepted.length > 0) this.#cancel = this.#whenWritable();
    else if (this.#phase === 'ending') this.destroy();
  };

  /** Writes until the kernel takes no more, or a turn's limit is reached. Throws write(2)'s errors, such as EAGAIN. */
  #writeSome(): void {
    for (let most = TURN_BYTES; most > 0; ) {
      const [first] = this.#accepted;
      if (!first) return;
      const size = Math.min(most, first.length - this.#taken);
      const count = guarded(this.#cgroup, () => writeSync(this.#descriptor, first, this.#taken, size));
      this.#taken += count;
      most -= count;
      if (this.#taken < first.length) continue;
      this.#accepted.shift();
      this.#length -= first.length;
      this.#taken = 0;
    }
  }

  /** Waiting needs a descriptor. If none is available, the next attempt is made after a delay. */
  #whenWritable(): () => void {
    try {
      return awaitReady(this.#descriptor, true, this.#pump);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      const timer = setTimeout(this.#pump, RETRY_MS).unref();
      return () => clearTimeout(timer);
    }
  }
}
