import type { Writable } from 'node:stream';
import { EnvdError } from '../../../base/errors.ts';

/** How many bytes of input the daemon keeps for a process that does not read, beside what the kernel holds. @internal */
export const QUEUE_BYTES = 1024 * 1024;

interface Waiting {
  readonly bytes: Uint8Array;
  readonly accept: () => void;
  readonly refuse: (error: unknown) => void;
}

/** What leads to a process' input. */
export interface InputChannel {
  /** The stream, which most processes never need; the same one each time. */
  open(): Writable;
  /** Tells the process that nothing follows what was written. */
  end(): void;
}

/**
 * The input of a process: a bounded queue in front of a pipe or a terminal. A write is acknowledged when it has
 * been accepted into the queue, in the order of the calls; while the queue is full it waits, and a caller that
 * gives up takes its bytes with it. A process that does not read holds up its own writers and nobody else.
 */
export class Input {
  readonly #channel: InputChannel;
  readonly #name: string;
  #stream: Writable | null = null;
  readonly #waiting: Waiting[] = [];
  #closed = false;

  /** `name` appears in errors, like `stdin of process 7`. */
  constructor(channel: InputChannel, name: string) {
    this.#channel = channel;
    this.#name = name;
  }

  /** Throws `failed_precondition` when the input is closed, and the signal's reason when the caller gives up. */
  write(bytes: Uint8Array, signal: AbortSignal): Promise<void> {
    if (this.#closed) return Promise.reject(this.#closedError());
    signal.throwIfAborted();
    const stream = this.#open();
    if (this.#waiting.length > 0 || !hasRoom(stream)) return this.#wait(bytes, signal);
    stream.write(bytes);
    return Promise.resolve();
  }

  /** Ends the input after what has been accepted; what still waits is refused. Idempotent. */
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
      if (index < 0) return; // Accepted or refused a moment ago.
      this.#waiting.splice(index, 1);
      reject(signal.reason);
    };
    const forget = () => signal.removeEventListener('abort', giveUp);
    const waiting = { bytes, accept: resolve, refuse: reject };
    signal.addEventListener('abort', giveUp, { once: true });
    this.#waiting.push(waiting);
    return promise.finally(forget);
  }

  #open(): Writable {
    if (this.#stream) return this.#stream;
    const stream = this.#channel.open();
    stream.on('drain', () => this.#pump(stream));
    // EPIPE and EIO: the reader is gone, by its own choice or with the process.
    stream.on('error', () => this.close());
    stream.on('close', () => this.close());
    this.#stream = stream;
    return stream;
  }

  #pump(stream: Writable): void {
    while (this.#waiting.length > 0 && hasRoom(stream)) {
      const next = this.#waiting.shift();
      if (!next) return;
      stream.write(next.bytes);
      next.accept();
    }
  }

  #closedError(): EnvdError {
    return new EnvdError('failed_precondition', `${this.#name} is closed`);
  }
}

function hasRoom(stream: Writable): boolean {
  return stream.writableLength < QUEUE_BYTES;
}
