import { EnvdError } from '../../../../base/errors.ts';
import type { Kept, Quota } from '../../../../base/quota.ts';
import type { TerminalSize } from '../../../linux/processes/pty.ts';
import type { EndEvent, Offsets, OutputEvent, OutputStream, ProcessEvent, StartEvent } from './events.ts';
import type { History } from './history.ts';
import { type KeptOutput, restoreHistory } from './output-recovery.ts';
import { type EventSource, Reader } from './reader.ts';
import { ScreenModes } from './screen-modes.ts';
import { UnreadOutput } from './unread-output.ts';

/** When a reader lags by more than this many bytes, reading from the process is paused. */
const WINDOW_BYTES = 1024 * 1024;
/** Each process may keep this many bytes for its slowest reader besides the limit of all together. */
const UNCOUNTED_BYTES = 64 * 1024;
/** An event costs this many bytes of overhead, so that many tiny events count for the memory that they take. */
const EVENT_BYTES = 256;

/** A writer is paused while its readers lag. */
interface Writer {
  setPaused(paused: boolean): void;
}

/** What the outputs of all processes share. */
export interface SharedOutput {
  /** Bounds what waits for slow readers. */
  readonly unread: Quota;
  /** Counts the bytes written so far, by stream. */
  readonly written: Record<OutputStream, number>;
}

/**
 * Delivers the output of a process to any number of readers. Each gets everything from the moment it was added, or from
 * an earlier offset as far as it is kept. All share one log of events, and a reader is a position in it. The writer is
 * paused while the slowest reader lags by more than a window. Without readers it is never paused. What waits for slow
 * readers is bounded for all processes together.
 */
export class Output implements EventSource, Kept {
  readonly #log = new UnreadOutput();
  #offsets = { stdout: 0, stderr: 0, pty: 0 };
  #end: EndEvent | null = null;
  #paused = false;
  #held = false;
  readonly #history: History;
  /** Null until a terminal has had output. */
  #modes: ScreenModes | null = null;
  #readers: readonly Reader[] = [];
  /** Null before it is attached, and after the end. */
  #writer: Writer | null = null;
  readonly #shared: SharedOutput;
  /** The bytes that are counted as unread, and the position of the slowest reader then. */
  #counted = 0;
  #slowest = 0;

  /** `history` serves readers that reconnect. */
  constructor(history: History, shared: SharedOutput) {
    this.#history = history;
    this.#shared = shared;
  }

  attach(writer: Writer): void {
    this.#writer = writer;
  }

  /** Pauses the writer until `release`. */
  hold(): void {
    this.#held = true;
    this.#writer?.setPaused(true);
  }

  /** Undoes `hold`. The writer then is paused only if a reader lags. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    this.#writer?.setPaused(this.#paused);
    this.#balance();
  }

  /** Tells whether a reader has not taken all events. */
  get hasUnread(): boolean {
    return this.#readers.some((reader) => reader.hasUnread);
  }

  /** Returns the number of the process in the kept output. */
  get number(): number {
    return this.#history.process;
  }

  /** Returns the bytes of all streams so far. */
  get totals(): Offsets {
    return { ...this.#offsets };
  }

  /** Returns sequences that set the modes of the terminal in one that was reset. */
  get modes(): string {
    return this.#modes?.sequences ?? '';
  }

  /**
   * Continues the output of an earlier program. The terminal had these `modes` then, or earlier, and the kept output has the
   * changes since.
   */
  continueFrom(kept: KeptOutput, modes = ''): void {
    this.#scan('pty', Buffer.from(modes, 'latin1'));
    this.#offsets = restoreHistory(this.#history, kept, (stream, bytes) => this.#scan(stream, bytes));
  }

  get ended(): boolean {
    return this.#end !== null;
  }

  write(stream: OutputStream, bytes: Buffer): void {
    const event: OutputEvent = { type: 'output', stream, bytes, offset: this.#offsets[stream] };
    this.#history.append(stream, bytes, this.#offsets);
    this.#offsets[stream] += bytes.length;
    this.#shared.written[stream] += bytes.length;
    this.#scan(stream, bytes);
    this.#append(event, bytes.length + EVENT_BYTES);
  }

  /** Appends the last event. */
  end(event: EndEvent): void {
    this.#end = event;
    this.#writer = null;
    this.#append(event, 0);
  }

  /**
   * Adds a reader of all further events or, after the end, of the end event. With `from`, the kept output from these
   * offsets on comes first. With `deadlineMs`, a process that is killed at its deadline ends this reader with
   * `deadline_exceeded`. Throws `invalid_argument` for an offset that has not been reached.
   */
  read(
    pid: number,
    from: Offsets | null,
    deadlineMs: number | null = null,
    windowBytes = WINDOW_BYTES,
  ): Reader {
    const start: StartEvent = { type: 'start', pid, offsets: null };
    const before = [...(from ? this.#resume(start, from) : [start]), ...(this.#end ? [this.#end] : [])];
    return this.#add(new Reader(this, this.#log, before, { pid, deadlineMs, windowBytes }));
  }

  /**
   * Adds a reader that shows the terminal of a process that runs. It has shown the output until `from`; null means nothing and that
   * it does not want what is kept. Unless everything since then is kept, the first bytes put a terminal that was reset into the modes
   * of the program. They count as the last bytes before the output that follows. Throws as `read` does.
   */
  join(pid: number, from: Offsets | null, size: TerminalSize | null): Reader {
    const start: StartEvent = { type: 'start', pid, offsets: null, size };
    const resumed = from && this.#resume(start, from);
    const isWhole = resumed?.every(({ type }) => type !== 'gap') ?? false;
    const before = resumed && isWhole ? resumed : this.#eventsOfScreen(start, from);
    return this.#add(
      new Reader(this, this.#log, before, { pid, deadlineMs: null, windowBytes: WINDOW_BYTES }),
    );
  }

  /** Drops the history. New readers still get the end event. */
  forget(): void {
    this.#history[Symbol.dispose]();
  }

  advanced(): void {
    // A reader that advances can only end a pause, and free memory.
    if (this.#paused || this.#counted > 0) this.#balance();
  }

  /** Drops a reader for which others wait. */
  stalled(reader: Reader): void {
    if (!this.#lags(reader) || !this.#isWanted) return;
    const text = 'reader dropped: it has taken nothing for 5 s while others wait, connect again';
    reader.drop(new EnvdError('resource_exhausted', text));
  }

  remove(reader: Reader): void {
    this.#readers = this.#readers.filter((one) => one !== reader);
    this.#balance();
  }

  /** Drops the slowest readers. */
  drop(reason: EnvdError): void {
    const limit = this.#log.position - this.#counted / 2;
    for (const reader of this.#readers.filter(({ place }) => place.position <= limit)) reader.drop(reason);
  }

  #resume(start: StartEvent, from: Offsets): ProcessEvent[] {
    for (const stream of ['stdout', 'stderr', 'pty'] as const) {
      if (from[stream] <= this.#offsets[stream]) continue;
      const text = `cannot resume ${stream} from ${from[stream]}: ${this.#offsets[stream]} bytes were written`;
      throw new EnvdError('invalid_argument', text);
    }
    return this.#history.resume(start, from, this.#offsets);
  }

  /** Returns what sets the modes, and what is kept, unless the program covers that. */
  #eventsOfScreen(start: StartEvent, from: Offsets | null): ProcessEvent[] {
    const now = this.#offsets.pty;
    const first = from === null || this.#modes?.isAlternate ? now : (this.#history.firstOffset('pty') ?? now);
    const begun = first === now ? (this.#modes?.begun ?? '') : '';
    const bytes = Buffer.from(this.modes + begun, 'latin1');
    const to = { ...this.#offsets, pty: Math.max(0, first - bytes.length) };
    const kept = this.#history.resume(start, { ...this.#offsets, pty: first }, this.#offsets).slice(1);
    const modes: OutputEvent = { type: 'output', stream: 'pty', bytes, offset: to.pty };
    return [
      { ...start, offsets: to },
      ...(from && from.pty < to.pty ? [{ type: 'gap', from, to } as const] : []),
      ...(bytes.length > 0 ? [modes] : []),
      ...kept,
    ];
  }

  #scan(stream: OutputStream, bytes: Buffer): void {
    if (stream !== 'pty') return;
    this.#modes ??= new ScreenModes();
    this.#modes.scan(bytes);
  }

  #add(reader: Reader): Reader {
    this.#readers = [...this.#readers, reader];
    // The new reader may wait for one that had stalled before.
    this.#balance();
    return reader;
  }

  #append(event: ProcessEvent, cost: number): void {
    this.#log.append(event, cost);
    for (const reader of this.#readers) reader.wake();
    this.#balance();
  }

  /**
   * Pauses or resumes the writer by the slowest reader, starts or stops the stall timers of readers that block others,
   * and drops events that all readers have taken.
   */
  #balance(): void {
    let needed = this.#log.end;
    let slowest = this.#log.position;
    let blocked = false;
    const isWanted = this.#isWanted;
    for (const reader of this.#readers) {
      const { next, position } = reader.place;
      slowest = Math.min(slowest, position);
      needed = Math.min(needed, next);
      const lags = this.#lags(reader);
      blocked ||= lags;
      reader.setHoldingUp(isWanted && lags);
    }
    if (this.#end && this.#readers.length === 0) this.#log.clear();
    else this.#log.forget(needed);
    if (blocked !== this.#paused && !this.#held) {
      this.#paused = blocked;
      this.#writer?.setPaused(blocked);
    }
    this.#count(slowest);
  }

  #lags({ place, windowBytes }: Reader): boolean {
    return place.position < this.#log.position - windowBytes;
  }

  /** Tells whether a reader does not lag. Such a reader waits for output when another one holds it up. */
  get #isWanted(): boolean {
    return this.#readers.some((reader) => !this.#lags(reader));
  }

  /** Counts what is unread. It comes last in a change, because it may drop readers. */
  #count(slowest: number): void {
    const lag = this.#log.position - slowest;
    const counted = lag > UNCOUNTED_BYTES ? lag : 0;
    if (counted === 0 && this.#counted === 0) return;
    const isServed = slowest !== this.#slowest;
    this.#counted = counted;
    this.#slowest = slowest;
    this.#shared.unread.set(this, counted, isServed);
  }
}
