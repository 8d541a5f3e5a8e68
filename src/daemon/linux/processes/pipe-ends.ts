import { native, type PipeReader } from '../system/native.ts';
import { guarded } from './guarded.ts';
import { ReadBuffer } from './read-buffer.ts';

/** Says whose output a pipe carries, for a program that comes after a crash. */
export interface PipeOwner {
  readonly process: number;
  readonly stream: number;
  /** The stream had this many bytes before those of this pipe. */
  readonly offset: number;
  /** The path of the cgroup of the process, or null if it is unknown. */
  readonly cgroup: string | null;
}

const NOBODY: PipeOwner = { process: 0, stream: 0, offset: 0, cgroup: null };

/** Reads all pipes and terminals into one shared buffer and copies each result, so that no read allocates 64 KiB. */
export class PipePoller {
  readonly #buffer = new ReadBuffer();
  /** Maps the reader's numbers to the open pipes. */
  readonly #open = new Map<number, ReadEnd>();
  readonly #reader = native.pipeReader(this.#buffer.room, (pipe, length) => this.#take(pipe, length));

  /** Reads a pipe or a terminal's master, which the result owns. If not `isWatched`, only `ReadEnd.read` reads it. */
  read(descriptor: number, onBytes: (bytes: Buffer) => void, owner = NOBODY, isWatched = true): ReadEnd {
    const pipe = this.#reader.open(descriptor, isWatched, owner.cgroup ?? '');
    this.#buffer.own(pipe, owner);
    const end = new ReadEnd(this.#reader, pipe, { descriptor, cgroup: owner.cgroup }, onBytes);
    this.#open.set(pipe, end);
    return end;
  }

  /** Returns the descriptors of all open pipes. */
  get descriptors(): number[] {
    return [...this.#open.values()].map(({ descriptor }) => descriptor);
  }

  /** Returns what `readInFlight` needs after a crash, or null if no memory can be handed over. */
  get inFlight(): { readonly buffer: number; readonly transit: number } | null {
    const { descriptor } = this.#buffer;
    return descriptor === null ? null : { buffer: descriptor, transit: this.#reader.transit };
  }

  /** Takes `length` bytes, which a read has put into the buffer. A length of 0 means end of file. */
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

/** Owns the descriptor of the reading end of a pipe, or of the master of a terminal. */
export class ReadEnd {
  readonly descriptor: number;
  /** The path of the cgroup of the process, or null if it is unknown. */
  readonly cgroup: string | null;
  readonly #reader: PipeReader;
  readonly #pipe: number;
  /** Receives the bytes read. It is null once they are discarded. */
  #onBytes: ((bytes: Buffer) => void) | null;
  #isClosed = false;
  readonly #closed = Promise.withResolvers<void>();
  /** `drained` waits for this promise, and for that many bytes. It is null while nobody waits. */
  #drained: PromiseWithResolvers<void> | null = null;
  #unread = 0;

  /** `PipePoller.read` makes it. `pipe` is the reader's number for the pipe. */
  constructor(
    reader: PipeReader,
    pipe: number,
    from: Pick<ReadEnd, 'descriptor' | 'cgroup'>,
    onBytes: (bytes: Buffer) => void,
  ) {
    this.#onBytes = onBytes;
    this.#reader = reader;
    this.#pipe = pipe;
    this.descriptor = from.descriptor;
    this.cgroup = from.cgroup;
  }

  /** Resolves at end of file, when all write ends are closed and everything was read. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  setPaused(paused: boolean): void {
    if (!this.#isClosed) this.#reader.setPaused(this.#pipe, paused);
  }

  /** Reads what the pipe holds, and the end of file, unless it is paused. Returns the number of bytes. */
  read(): number {
    return this.#isClosed ? 0 : this.#reader.read(this.#pipe);
  }

  /**
   * Reads what the pipe holds. Returns a promise that resolves when everything that it holds now has been read, or null
   * if that has happened already.
   */
  drained(): Promise<void> | null {
    this.#unread = this.pending;
    this.read();
    if (this.#unread <= 0) return null;
    this.#drained = Promise.withResolvers<void>();
    return Promise.race([this.#drained.promise, this.closed]);
  }

  /** Discards what is read from now on. The event loop can end while this is open. */
  discard(): void {
    this.#onBytes = null;
    if (this.#isClosed) return;
    this.#reader.setPaused(this.#pipe, false);
    this.#reader.unref(this.#pipe);
  }

  close(): void {
    if (!this.#isClosed) this.#reader.close(this.#pipe);
  }

  /** Returns the descriptor, or null when it is closed. */
  get openDescriptor(): number | null {
    return this.#isClosed ? null : this.descriptor;
  }

  /** Returns how many bytes in the pipe have not been read. Source: FIONREAD, pipe(7). */
  get pending(): number {
    return this.#isClosed ? 0 : guarded(this.cgroup, () => native.pendingBytes(this.descriptor));
  }

  /** Takes bytes that were read; `PipePoller` calls it. */
  take(bytes: Buffer): void {
    this.#onBytes?.(bytes);
    this.#unread -= bytes.length;
    if (this.#unread <= 0) this.#drained?.resolve();
  }

  /** Marks it as closed, after the reader has closed the descriptor. */
  finish(): void {
    this.#isClosed = true;
    this.#closed.resolve();
  }
}
