import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { isOutOfSpace } from '../../linux/system/errno.ts';
import type { ExtensionState } from '../../services/handover/state.ts';
import type { EndedProcess } from '../../services/process/lifecycle/ended.ts';
import { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import type { Selector } from '../../services/process/lifecycle/process-index.ts';
import type {
  EndEvent,
  Offsets,
  OutputEvent,
  OutputStream,
  ProcessEvent,
} from '../../services/process/output/events.ts';
import type { Output } from '../../services/process/output/output.ts';
import type { Reader } from '../../services/process/output/reader.ts';
import type { Disk } from './disk.ts';
import { EXTENSION, type OutputPlace } from './output-places.ts';
import { Ring, type RingState } from './ring.ts';
import type { LastingState } from './state.ts';
import type { Terms } from './terms.ts';

/** One write has about this many bytes. So each process has little in memory while it waits for the disk. */
const BATCH_BYTES = 64 * 1024;
/**
 * The process waits when the disk lags by this many bytes. They are less than what the daemon has of each process after a crash, with
 * what it had taken but not written. So nothing is missing then.
 */
const WINDOW_BYTES = 512 * 1024;
/** A write to a full disk is tried again after this time, in milliseconds. */
const FULL_MS = 1000;
/** When the process has exited, writes to a full disk are tried again this many times in all, because its end waits for them. */
const TRIES_AFTER_EXIT = 5;
const GONE = 'the output is not kept any longer';

/**
 * Copies the output of one process to a file, as a reader beside those of clients, and keeps it with the end of the process.
 * The process is not faster than the disk, because it waits for its slowest reader. A reader that holds up others for long is
 * dropped, as one of a client is; then this continues with what the daemon still has.
 */
export class LastingOutput {
  readonly terms: Terms;
  readonly file: OpenFile;
  readonly rings: ReadonlyMap<OutputStream, Ring>;
  #pid: number;
  #tag: string | null;
  #end: EndEvent | null;
  #endedAt: number;
  #isComplete: boolean;
  #error: string | null;
  readonly #disk: Disk;
  readonly #place: OutputPlace;
  /** Null for a process that only an earlier program knew. */
  #process: ManagedProcess | EndedProcess | null = null;
  #reader: Reader | null = null;
  #triesAfterExit = TRIES_AFTER_EXIT;
  #isClosed = false;
  /** The reads and writes in progress, during which the file must stay open. */
  readonly #uses = new Set<Promise<unknown>>();
  #changed = Promise.withResolvers<void>();

  constructor(state: LastingState, file: OpenFile, disk: Disk, place: OutputPlace) {
    ({ terms: this.terms, pid: this.#pid, tag: this.#tag } = state);
    ({ end: this.#end, endedAt: this.#endedAt, isComplete: this.#isComplete, error: this.#error } = state);
    const rings = Object.entries(state.rings) as [OutputStream, RingState][];
    this.rings = new Map(
      rings.map(([stream, ring], index) => [stream, new Ring(file, ring, place.numbersOf(index))]),
    );
    this.file = file;
    this.#disk = disk;
    this.#place = place;
  }

  get state(): LastingState {
    const rings = Object.fromEntries(Array.from(this.rings, ([stream, ring]) => [stream, ring.state]));
    return {
      ...{ pid: this.#pid, tag: this.#tag, terms: this.terms, rings },
      ...{ end: this.#end, endedAt: this.#endedAt, isComplete: this.#isComplete, error: this.#error },
    };
  }

  /** Returns the state for the next program of this process. */
  get handedOver(): ExtensionState {
    const { key } = this.#place;
    return { extension: EXTENSION, record: key, descriptors: [this.file.fd], state: this.state };
  }

  /** Resolves when something has changed. */
  get changed(): Promise<void> {
    return this.#changed.promise;
  }

  isNamed(selector: Selector): boolean {
    return this.#pid !== 0 && ('pid' in selector ? this.#pid === selector.pid : this.#tag === selector.tag);
  }

  /** Tells whether a process has this output. */
  isOf({ output }: ManagedProcess | EndedProcess): boolean {
    return this.#process?.output === output;
  }

  /**
   * Begins with a process that was just started or, with `resumes`, continues with what was not written of it. Resolves when all was
   * written, or cannot be.
   */
  async keep(process: ManagedProcess | EndedProcess, resumes = false): Promise<void> {
    this.#process = process;
    ({ pid: this.#pid, tag: this.#tag } = process);
    this.#record();
    if (!(process instanceof ManagedProcess)) this.#setEnd(process);
    else void process.ended.then((ended) => this.#setEnd(ended));
    try {
      if (!this.#isComplete) await this.#follow(process.output, this.#read(process.output, resumes));
    } catch (error) {
      this.#error = messageOf(error);
    }
    this.finish();
  }

  /** Says that nothing more is written. */
  finish(): void {
    this.#isComplete = true;
    this.#record();
    this.#notify();
  }

  /** Reads as `Ring.read` does. Throws `aborted` when it is closed, or the disk fails. */
  async read(ring: Ring, offset: number, length: number): Promise<Buffer | null> {
    try {
      return await this.#use(() => ring.read(offset, length));
    } catch (error) {
      if (!isSystemError(error)) throw error;
      throw new EnvdError('aborted', `the output cannot be read: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Closes the file, and reads no more of the process. A daemon that comes after this one may continue with its record. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    if (!this.#isComplete) this.#error ??= GONE;
    for (const ring of this.rings.values()) ring.detach();
    this.#reader?.[Symbol.dispose]();
    void Promise.allSettled(this.#uses).then(() => this.#disk.close(this.file));
    this.#notify();
  }

  /** Gives the file and its space back. */
  forget(): void {
    this.close();
    this.#place[Symbol.dispose]();
  }

  /** Records what a program after a crash needs. The numbers of the rings are in memory that it finds as well. */
  #record(): void {
    if (!this.#isClosed) this.#place.record(this.state, this.file.fd);
  }

  /** Runs a step that uses the file. The number of its descriptor may be another file's once it is closed. */
  async #use<T>(step: () => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new EnvdError('aborted', GONE);
    const use = step();
    this.#uses.add(use);
    try {
      return await use;
    } finally {
      this.#uses.delete(use);
    }
  }

  get #offsets(): Offsets {
    const to = (stream: OutputStream) => this.rings.get(stream)?.to ?? 0;
    return { stdout: to('stdout'), stderr: to('stderr'), pty: to('pty') };
  }

  #setEnd(ended: EndedProcess): void {
    this.#process = ended;
    ({ end: this.#end, endedAt: this.#endedAt } = ended);
    this.#record();
    this.#notify();
  }

  #notify(): void {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  #read(output: Output, resumes: boolean): Reader {
    return output.read(this.#pid, resumes ? this.#offsets : null, null, WINDOW_BYTES);
  }

  async #follow(output: Output, first: Reader): Promise<void> {
    for (let reader = first; !(await this.#readAll(reader)); )
      // Until its turn, it holds up nobody.
      reader = await this.#disk.run(async () => this.#read(output, true));
  }

  /** Returns false if the reader was dropped. */
  async #readAll(reader: Reader): Promise<boolean> {
    using current = reader;
    this.#reader = current;
    for (;;) {
      const events = await nextOf(current);
      if (events === 'dropped') return false;
      if (events === null || this.#isClosed) return true;
      await this.#write(events);
    }
  }

  async #write(events: readonly ProcessEvent[]): Promise<void> {
    const pieces = Map.groupBy(
      events.filter((event) => event.type === 'output'),
      ({ stream }) => stream,
    );
    for (const [stream, some] of pieces) {
      const ring = this.rings.get(stream);
      if (ring) await this.#writePieces(ring, some);
    }
    this.#notify();
  }

  async #writePieces(ring: Ring, pieces: readonly OutputEvent[]): Promise<void> {
    const bytes = Buffer.concat(pieces.map((piece) => piece.bytes));
    const offset = pieces[0]?.offset ?? 0;
    while (!this.#isClosed) {
      try {
        return await this.#disk.run(() => this.#use(() => ring.write(bytes, offset)));
      } catch (error) {
        if (!(await this.#waitAfter(error))) ring.stopGrowing(offset + bytes.length);
      }
    }
  }

  /** Waits until a write is tried again. Returns false on a full disk if nobody may wait for it. Throws all other errors. */
  async #waitAfter(error: unknown): Promise<boolean> {
    const isFull = isOutOfSpace(error);
    // The lanes refuse a call when too many wait.
    if (!isFull && !(error instanceof EnvdError)) throw error;
    const process = this.#process;
    const isOver = !(process instanceof ManagedProcess) || process.isExiting;
    if (isFull && (this.terms.dropsWhenFull || (isOver && this.#triesAfterExit-- <= 0))) return false;
    await delay(FULL_MS, undefined, { ref: false });
    return true;
  }

  /** Returns when it is to be forgotten, in milliseconds from now; null while the process runs. */
  get leftMs(): number | null {
    if (this.#end === null) return null;
    return Math.max(0, this.#endedAt + this.terms.seconds * 1000 - monotonicMs());
  }
}

/** Returns the next events of a reader, which is dropped when others wait for it for too long. */
async function nextOf(reader: Reader): Promise<readonly ProcessEvent[] | null | 'dropped'> {
  try {
    return await reader.next(BATCH_BYTES);
  } catch (error) {
    if (error instanceof EnvdError && error.kind === 'resource_exhausted') return 'dropped';
    throw error;
  }
}
