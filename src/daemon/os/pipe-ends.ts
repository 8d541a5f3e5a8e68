import { closeSync } from 'node:fs';
import { DescriptorInput } from './descriptor-input.ts';
import { native, type PipeReader } from './native.ts';

/** Maximum size of one read, in bytes. */
const BUFFER_BYTES = 64 * 1024;

/** Reads all pipes into one shared buffer and copies each result out of it, instead of allocating 64 KiB per read. */
export class PipePoller {
  readonly #buffer = Buffer.allocUnsafeSlow(BUFFER_BYTES);
  /** Open pipes by the reader's number. */
  readonly #open = new Map<number, ReadEnd>();
  #reader: PipeReader | null = null;

  /** Starts to read a pipe. The result owns the descriptor. */
  read(descriptor: number, onBytes: (bytes: Buffer) => void): ReadEnd {
    this.#reader ??= native.pipeReader(this.#buffer, (pipe, length) => this.#take(pipe, length));
    const pipe = this.#reader.open(descriptor);
    const end = new ReadEnd(this.#reader, pipe, descriptor, onBytes);
    this.#open.set(pipe, end);
    return end;
  }

  /** The descriptors of all open pipes. */
  get descriptors(): number[] {
    return [...this.#open.values()].map(({ descriptor }) => descriptor);
  }

  /** A read has put `length` bytes into the buffer; 0: end of file. */
  #take(pipe: number, length: number): void {
    const end = this.#open.get(pipe);
    if (length > 0) {
      end?.take(Buffer.from(this.#buffer.subarray(0, length)));
      return;
    }
    this.#open.delete(pipe);
    end?.finish();
  }
}

/** The reading end of a pipe, which owns its descriptor. */
export class ReadEnd {
  /** Resolves at end of file: all write ends are closed and everything was read. */
  readonly closed: Promise<void>;
  /** Receives the bytes read. */
  readonly take: (bytes: Buffer) => void;
  readonly #reader: PipeReader;
  readonly #pipe: number;
  readonly descriptor: number;
  readonly #onClosed: () => void;
  #isClosed = false;

  /** Called by `PipePoller.read`. `pipe`: the reader's number for it. */
  constructor(reader: PipeReader, pipe: number, descriptor: number, onBytes: (bytes: Buffer) => void) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    this.#onClosed = resolve;
    this.take = onBytes;
    this.#reader = reader;
    this.#pipe = pipe;
    this.descriptor = descriptor;
  }

  setPaused(paused: boolean): void {
    if (!this.#isClosed) this.#reader.setPaused(this.#pipe, paused);
  }

  /** Its descriptor; null when it is closed. */
  get openDescriptor(): number | null {
    return this.#isClosed ? null : this.descriptor;
  }

  /** Bytes in the pipe that have not been read. Source: FIONREAD, pipe(7). */
  get pending(): number {
    return this.#isClosed ? 0 : native.pendingBytes(this.descriptor);
  }

  /** Lets the event loop end while this is open. */
  unref(): void {
    if (!this.#isClosed) this.#reader.unref(this.#pipe);
  }

  /** Marks it as closed, after the reader has closed the descriptor. */
  finish(): void {
    this.#isClosed = true;
    this.#onClosed();
  }
}

/**
 * The writing end of a pipe, which owns its descriptor. The stream is created on first use: most are never written to.
 */
export class WriteEnd {
  /** Resolves when the descriptor has been closed. */
  readonly closed: Promise<void>;
  readonly #descriptor: number;
  readonly #onClosed: () => void;
  #stream: DescriptorInput | null = null;
  #isOpen = true;
  #ended = false;

  constructor(descriptor: number) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#descriptor = descriptor;
    this.closed = promise;
    this.#onClosed = resolve;
  }

  /** Null when it is closed. */
  get descriptor(): number | null {
    return this.#isOpen && !this.#stream?.destroyed ? this.#descriptor : null;
  }

  open(): DescriptorInput {
    this.#stream ??= new DescriptorInput(this.#descriptor, true).once('close', this.#onClosed);
    return this.#stream;
  }

  /** Closes it after pending writes; idempotent. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#stream) {
      if (!this.#stream.destroyed) this.#stream.end();
      return;
    }
    this.#isOpen = false;
    closeSync(this.#descriptor);
    this.#onClosed();
  }

  /** Closes it at once; pending writes are lost. */
  destroy(): void {
    this.#stream?.destroy();
    this.end();
  }
}
