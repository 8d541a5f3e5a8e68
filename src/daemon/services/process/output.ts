import { EnvdError } from '../../../base/errors.ts';
import { EventLog } from './event-log.ts';
import type { Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';
import type { History } from './history.ts';
import { Reader, type Source } from './reader.ts';

/** How far the slowest reader may lag behind, in bytes, before the process is slowed down to it. @internal */
export const WINDOW_BYTES = 1024 * 1024;
/** What an event costs beside its bytes: many tiny ones must not pass for little memory. */
const EVENT_BYTES = 256;

/**
 * What a process puts out, fanned out to any number of readers: each gets everything from the moment it was added,
 * or from an earlier offset as far as it is kept. There is one log of events; a reader is a place in it. The
 * source is paused while the slowest reader is more than a window behind; without readers it never is.
 */
export class Output implements Source {
  readonly #log = new EventLog();
  readonly #offsets = { stdout: 0, stderr: 0, pty: 0 };
  #ended = false;
  #paused = false;
  readonly #history: History;
  readonly #readers = new Set<Reader>();
  readonly #setPaused: (paused: boolean) => void;

  /** `setPaused` stops and restarts the source; `history` is for readers that come back. */
  constructor(setPaused: (paused: boolean) => void, history: History) {
    this.#setPaused = setPaused;
    this.#history = history;
  }

  get ended(): boolean {
    return this.#ended;
  }

  write(stream: OutputStream, bytes: Buffer): void {
    const event: OutputEvent = { type: 'output', stream, bytes, offset: this.#offsets[stream] };
    this.#offsets[stream] += bytes.length;
    this.#history.append(event);
    this.#append(event, bytes.length + EVENT_BYTES);
  }

  /** Appends the last event. */
  end(event: ProcessEvent): void {
    this.#ended = true;
    this.#append(event, 0);
  }

  /**
   * A reader of what is appended from now on; after the end, of the last event. With `from`, first of what is kept
   * from these offsets on. Throws `invalid_argument` for an offset that has not been reached.
   */
  read(pid: number, from: Offsets | null): Reader {
    const start: StartEvent = { type: 'start', pid, offsets: null };
    const before = from ? this.#resume(start, from) : [start];
    const next = this.#ended ? this.#log.end - 1 : this.#log.end;
    const reader = new Reader(this, this.#log, before, { next, position: this.#log.position });
    this.#readers.add(reader);
    return reader;
  }

  /** Gives up what is kept for readers that come back; the end is still told. */
  forget(): void {
    this.#history.clear();
  }

  advanced(): void {
    // Reading can only end a pause.
    if (this.#paused) this.#balance();
  }

  remove(reader: Reader): void {
    this.#readers.delete(reader);
    this.#balance();
  }

  #resume(start: StartEvent, from: Offsets): ProcessEvent[] {
    for (const stream of ['stdout', 'stderr', 'pty'] as const) {
      if (from[stream] <= this.#offsets[stream]) continue;
      const text = `cannot resume ${stream} from ${from[stream]}: ${this.#offsets[stream]} bytes were written`;
      throw new EnvdError('invalid_argument', text);
    }
    return this.#history.resume(start, from, this.#offsets);
  }

  #append(event: ProcessEvent, cost: number): void {
    this.#log.append(event, cost);
    for (const reader of this.#readers) reader.wake();
    this.#balance();
  }

  /**
   * Pauses or resumes the source by the slowest reader, times those that hold up others, and forgets what none of
   * them needs; the end stays, for those that come late.
   */
  #balance(): void {
    const limit = this.#log.position - WINDOW_BYTES;
    let needed = this.#ended ? this.#log.end - 1 : this.#log.end;
    let blocked = false;
    for (const reader of this.#readers) {
      const lags = reader.place.position < limit;
      blocked ||= lags;
      needed = Math.min(needed, reader.place.next);
      reader.setHoldingUp(lags && this.#readers.size > 1);
    }
    this.#log.forget(needed);
    if (blocked === this.#paused) return;
    this.#paused = blocked;
    this.#setPaused(blocked);
  }
}
