import { native, type PipeReader } from '../system/native.ts';
import { ReadBuffer } from './read-buffer.ts';

/** Whose output a pipe has, for a program that comes after a crash. */
export interface PipeOwner {
  readonly process: number;
  readonly stream: number;
  /** Bytes of the stream before those of this pipe. */
  readonly offset: number;
}

const NOBODY: PipeOwner = { process: 0, stream: 0, offset: 0 };

/** Reads all pipes and terminals into one shared buffer and copies each result out of it, instead of allocating 64 KiB per read. */
export class PipePoller {
  readonly #buffer = new ReadBuffer();
  /** Open pipes by the reader's number. */
  readonly #open = new Map<number, ReadEnd>();
  readonly #reader = native.pipeReader(this.#buffer.room, (pipe, length) => this.#take(pipe, length));

  /** Reads a pipe or the master of a terminal, which the result owns; with `isWatched` false only after `ReadEnd.read`. */
  read(descriptor: number, onBytes: (bytes: Buffer) => void, owner = NOBODY, isWatched = true): ReadEnd {
    const pipe = this.#reader.open(descriptor, isWatched);
    this.#buffer.own(pipe, owner);
    const end = new ReadEnd(this.#reader, pipe, descriptor, onBytes);
    this.#open.set(pipe, end);
    return end;
  }

  /** The descriptors of all open pipes. */
  get descriptors(): number[] {
    return [...this.#open.values()].map(({ descriptor }) => descriptor);
  }

  /** What `readInFlight` needs after a crash; null: no memory can be handed over. */
  get inFlight(): { readonly buffer: number; readonly transit: number } | null {
    const { descriptor } = this.#buffer;
    return descriptor === null ? null : { buffer: descriptor, transit: this.#reader.transit };
  }

  /** A read has put `length` bytes into the buffer; 0: end of file. */
  #take(pipe: number, length: number): void {
    const end = this.#open.get(pipe);
    if (length > 0) {
      end?.take(Buffer.from(this.#buffer.bytes(length)));
      this.#buffer.taken(pipe, length);
      return;
    }
    this.#open.delete(pipe);
    end?.finish();
  }
}

/** The reading end of a pipe, or the master of a terminal; owns its descriptor. */
export class ReadEnd {
  readonly descriptor: number;
  readonly #reader: PipeReader;
  readonly #pipe: number;
  /** Receives the bytes read; null once they are discarded. */
  #onBytes: ((bytes: Buffer) => void) | null;
  #isClosed = false;
  /** Made when somebody waits: most are closed before. */
  #closed: PromiseWithResolvers<void> | null = null;
  /** What `drained` waits for, and how many bytes that is; null: nobody waits. */
  #drained: PromiseWithResolvers<void> | null = null;
  #unread = 0;

  /** Called by `PipePoller.read`. `pipe`: the reader's number for it. */
  constructor(reader: PipeReader, pipe: number, descriptor: number, onBytes: (bytes: Buffer) => void) {
    this.#onBytes = onBytes;
    this.#reader = reader;
    this.#pipe = pipe;
    this.descriptor = descriptor;
  }

  /** Resolves at end of file: all write ends are closed and everything was read. */
  get closed(): Promise<void> {
    if (this.#isClosed) return Promise.resolve();
    this.#closed ??= Promise.withResolvers();
    return this.#closed.promise;
  }

  setPaused(paused: boolean): void {
    if (!this.#isClosed) this.#reader.setPaused(this.#pipe, paused);
  }

  /**
   * Reads what is there, and the end of file, without waiting for an event; nothing while it is paused. Returns the number
   * of bytes.
   */
  read(): number {
    return this.#isClosed ? 0 : this.#reader.read(this.#pipe);
  }

  /** Reads what is there. A promise, which resolves when all that is there now has been read; null: that has happened. */
  drained(): Promise<void> | null {
    this.#unread = this.pending;
    this.read();
    if (this.#unread <= 0) return null;
    this.#drained = Promise.withResolvers<void>();
    return Promise.race([this.#drained.promise, this.closed]);
  }

  /** Discards what is read from now on; the event loop can end while this is open. */
  discard(): void {
    this.#onBytes = null;
    if (this.#isClosed) return;
    this.#reader.setPaused(this.#pipe, false);
    this.#reader.unref(this.#pipe);
  }

  /** Closes it before its end. */
  close(): void {
    if (!this.#isClosed) this.#reader.close(this.#pipe);
  }

  /** Its descriptor; null when it is closed. */
  get openDescriptor(): number | null {
    return this.#isClosed ? null : this.descriptor;
  }

  /** Bytes in the pipe that have not been read. Source: FIONREAD, pipe(7). */
  get pending(): number {
    return this.#isClosed ? 0 : native.pendingBytes(this.descriptor);
  }

  /** Called by `PipePoller` with bytes that were read. */
  take(bytes: Buffer): void {
    this.#onBytes?.(bytes);
    this.#unread -= bytes.length;
    if (this.#unread <= 0) this.#drained?.resolve();
  }

  /** Marks it as closed, after the reader has closed the descriptor. */
  finish(): void {
    this.#isClosed = true;
    this.#closed?.resolve();
  }
}
