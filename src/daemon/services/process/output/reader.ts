import { EnvdError } from '../../../../base/errors.ts';
import type { Feed, Taken } from '../../../../base/feed.ts';
import type { ProcessEvent } from './events.ts';
import type { LogCursor, UnreadOutput } from './unread-output.ts';

/** A reader that takes something may block other readers for this long, in milliseconds, before it is dropped. */
const STALL_LIMIT_MS = 30_000;
/** A batch has this many bytes by default. */
const BATCH_BYTES = 128 * 1024;

/** A reader needs this of its output. */
export interface EventSource {
  readonly ended: boolean;
  /** A reader calls it when it has taken events. */
  advanced(): void;
  /** A reader calls it while its client takes nothing of what it was sent. */
  stalled(reader: Reader): void;
  remove(reader: Reader): void;
}

interface ReaderOptions {
  readonly pid: number;
  readonly deadlineMs: number | null;
  readonly windowBytes: number;
}

/** Reads the output of a process. */
export class Reader implements Feed<ProcessEvent> {
  readonly pid: number;
  /** The process waits when this reader lags by more bytes. */
  readonly windowBytes: number;
  readonly #source: EventSource;
  readonly #log: UnreadOutput;
  #place: LogCursor;
  #before: readonly ProcessEvent[];
  #wake: (() => void) | null = null;
  #stall: NodeJS.Timeout | null = null;
  #failure: EnvdError | null = null;
  #disposed = false;
  readonly #deadlineMs: number | null;

  /**
   * `before` holds events for this reader only, which come ahead of those that `log` gets from now on. If a deadline kills the
   * process, a reader with `deadlineMs` ends with an error. Others get the end event.
   */
  constructor(
    source: EventSource,
    log: UnreadOutput,
    before: readonly ProcessEvent[],
    { pid, deadlineMs, windowBytes }: ReaderOptions,
  ) {
    this.#source = source;
    this.#log = log;
    this.#place = log.endPlace;
    this.#before = before;
    this.pid = pid;
    this.windowBytes = windowBytes;
    this.#deadlineMs = deadlineMs;
  }

  get place(): LogCursor {
    return this.#place;
  }

  /** Tells whether there are events that it has not taken. */
  get hasUnread(): boolean {
    return this.#before.length > 0 || this.#place.next < this.#log.end;
  }

  next(bytes = BATCH_BYTES): Taken<ProcessEvent> | Promise<Taken<ProcessEvent>> {
    if (this.#failure) throw this.#failure;
    if (this.#disposed) return null;
    const events = this.#take(bytes);
    if (events.length > 0) return events;
    return this.#source.ended ? null : this.#wait(bytes);
  }

  /** Makes a waiting `next` check again. */
  wake(): void {
    this.#wake?.();
    this.#wake = null;
  }

  /** Starts or stops the stall timer of a reader that blocks others. */
  setHoldingUp(holding: boolean): void {
    if (!holding) this.#stopClock();
    else this.#stall ??= setTimeout(() => this.#dropStalled(), STALL_LIMIT_MS).unref();
  }

  stalled(): void {
    this.#source.stalled(this);
  }

  /** Ends it, so that `next` throws `reason`. */
  drop(reason: EnvdError): void {
    this.#failure = reason;
    this.#release();
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    this.#release();
  }

  async #wait(bytes: number): Promise<Taken<ProcessEvent>> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    await promise;
    return this.next(bytes);
  }

  #take(bytes: number): readonly ProcessEvent[] {
    const before = this.#before;
    this.#before = [];
    const { events, end } = this.#log.take(this.#place, bytes);
    this.#place = end;
    if (events.length > 0) this.#source.advanced();
    return this.#checked(before.length === 0 ? events : [...before, ...events]);
  }

  /** Replaces the end of a process that its deadline has killed by an error. Throws it when no event is before it. */
  #checked(events: readonly ProcessEvent[]): readonly ProcessEvent[] {
    const last = events.at(-1);
    if (this.#deadlineMs === null || last?.type !== 'end' || last.reason !== 'deadline') return events;
    this.#failure = new EnvdError('deadline_exceeded', `process was killed after ${this.#deadlineMs} ms`);
    if (events.length === 1) throw this.#failure;
    return events.slice(0, -1);
  }

  #dropStalled(): void {
    const seconds = STALL_LIMIT_MS / 1000;
    const text = `reader dropped: it has not read for ${seconds} s while others wait, connect again`;
    this.drop(new EnvdError('resource_exhausted', text));
  }

  #release(): void {
    this.#stopClock();
    this.#source.remove(this);
    this.wake();
  }

  #stopClock(): void {
    if (this.#stall) clearTimeout(this.#stall);
    this.#stall = null;
  }
}
