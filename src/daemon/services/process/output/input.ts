import type { Writable } from 'node:stream';
import { EnvdError } from '../../../../base/errors.ts';

/** Size of the input queue of a process, in bytes, besides the kernel's buffer. */
const QUEUE_BYTES = 1024 * 1024;

interface Waiting {
  readonly bytes: Uint8Array;
  readonly accept: () => void;
  readonly refuse: (error: unknown) => void;
}

/** A stream that may tell how many bytes of the piece it writes the kernel has taken. */
export type InputStream = Writable & { readonly takenBytes?: number };

/** The write end of stdin or the terminal. */
export interface InputChannel {
  /** Opens the stream on first use; returns the same stream each time. */
  open(): InputStream;
  /** Signals end of file to the process. */
  end(): void;
}

/**
 * The input of a process: a bounded queue in front of a pipe or a terminal. A write resolves when the queue has
 * accepted it; writes are accepted in the order of the calls. While the queue is full, writes wait; an aborted write is
 * not accepted. A process that does not read delays its own writers only.
 */
export class Input {
  readonly #channel: InputChannel;
  readonly #name: string;
  #stream: InputStream | null = null;
  /** Accepted and not completely written. */
  readonly #accepted: Uint8Array[] = [];
  readonly #waiting: Waiting[] = [];
  #closed = false;

  /** `name` is used in errors: `stdin of process 7`. */
  constructor(channel: InputChannel, name: string) {
    this.#channel = channel;
    this.#name = name;
  }

  /** Throws `failed_precondition` when the input is closed, and the signal's reason when aborted. */
  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#closed) return Promise.reject(this.#closedError());
    signal.throwIfAborted();
    const stream = this.#open();
    if (this.#waiting.length > 0 || !hasRoom(stream)) return this.#wait(bytes, signal);
    return this.#accept(stream, bytes) ? Promise.resolve() : Promise.reject(this.#closedError());
  }

  get isClosed(): boolean {
    return this.#closed;
  }

  /** The accepted bytes that have not been written. */
  get unwritten(): Buffer {
    return Buffer.concat(this.#accepted).subarray(this.#stream?.takenBytes ?? 0);
  }

  /** Writes what an earlier program has accepted. */
  continueWith(unwritten: Buffer): void {
    if (unwritten.length > 0) this.#accept(this.#open(), unwritten);
  }

  /** Closes the input after the accepted writes; waiting writes are refused. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const waiting of this.#waiting.splice(0)) waiting.refuse(this.#closedError());
    this.#channel.end();
  }

  #wait(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const giveUp = () => {
      const index = this.#waiting.indexOf(waiting);
      if (index < 0) return; // Already accepted or refused.
      this.#waiting.splice(index, 1);
      reject(signal.reason);
    };
    const forget = () => signal.removeEventListener('abort', giveUp);
    const waiting = { bytes, accept: resolve, refuse: reject };
    signal.addEventListener('abort', giveUp, { once: true });
    this.#waiting.push(waiting);
    return promise.finally(forget);
  }

  /** False when the kernel has refused it at once: nobody reads any more. */
  #accept(stream: InputStream, bytes: Uint8Array): boolean {
    this.#accepted.push(bytes);
    stream.write(bytes, () => this.#accepted.shift());
    return stream.errored === null;
  }

  #open(): InputStream {
    if (this.#stream) return this.#stream;
    const stream = this.#channel.open();
    stream.on('drain', () => this.#pump(stream));
    // EPIPE and EIO: the process has closed its input or has ended.
    stream.on('error', () => this.close());
    stream.on('close', () => this.close());
    this.#stream = stream;
    return stream;
  }

  #pump(stream: InputStream): void {
    while (this.#waiting.length > 0 && hasRoom(stream)) {
      const next = this.#waiting.shift();
      if (!next) return;
      if (this.#accept(stream, next.bytes)) next.accept();
      else next.refuse(this.#closedError());
    }
  }

  #closedError(): EnvdError {
    return new EnvdError('failed_precondition', `${this.#name} is closed`);
  }
}

function hasRoom(stream: Writable): boolean {
  return stream.writableLength < QUEUE_BYTES;
}
