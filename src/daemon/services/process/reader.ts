import { EnvdError } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import type { EventLog, Place } from './event-log.ts';
import type { ProcessEvent } from './events.ts';

/** How long a reader may hold up the others, in milliseconds, before it is dropped. @internal */
export const STALL_LIMIT_MS = 30_000;
/** Output that a reader takes at a time, in bytes, unless it wants another amount. */
const BATCH_BYTES = 128 * 1024;

/** What a reader reads from. */
export interface Source {
  readonly ended: boolean;
  /** A reader has taken something. */
  advanced(): void;
  remove(reader: Reader): void;
}

/** Somebody who reads a process' output. */
export class Reader implements Feed<ProcessEvent> {
  readonly #source: Source;
  readonly #log: EventLog;
  #place: Place;
  #before: readonly ProcessEvent[];
  #wake: (() => void) | null = null;
  #stall: NodeJS.Timeout | null = null;
  #failure: EnvdError | null = null;
  #disposed = false;

  /** `before`: this reader's own, ahead of what it shares with others from `place` in the log on. */
  constructor(source: Source, log: EventLog, before: readonly ProcessEvent[], place: Place) {
    this.#source = source;
    this.#log = log;
    this.#before = before;
    this.#place = place;
  }

  /** How far it has come. */
  get place(): Place {
    return this.#place;
  }

  async next(bytes = BATCH_BYTES): Promise<readonly ProcessEvent[] | null> {
    for (;;) {
      if (this.#failure) throw this.#failure;
      if (this.#disposed) return null;
      const events = this.#take(bytes);
      if (events.length > 0) return events;
      if (this.#source.ended) return null;
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
  }

  /** Something may have changed for a `next` that waits. */
  wake(): void {
    this.#wake?.();
    this.#wake = null;
  }

  /** Starts or stops the clock of a reader that others wait for. */
  setHoldingUp(holding: boolean): void {
    if (!holding) this.#stopClock();
    else this.#stall ??= setTimeout(() => this.#drop(), STALL_LIMIT_MS).unref();
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    this.#release();
  }

  #take(bytes: number): readonly ProcessEvent[] {
    if (this.#before.length > 0) {
      const events = this.#before;
      this.#before = [];
      return events;
    }
    const { events, end } = this.#log.take(this.#place, bytes);
    this.#place = end;
    if (events.length > 0) this.#source.advanced();
    return events;
  }

  #drop(): void {
    const seconds = STALL_LIMIT_MS / 1000;
    const text = `reader dropped: it has not read for ${seconds} s while others wait`;
    this.#failure = new EnvdError('resource_exhausted', text);
    this.#release();
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
