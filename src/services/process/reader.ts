import { EnvdError } from '../../base/errors.ts';
import type { Feed } from '../../base/feed.ts';
import type { ProcessEvent } from './events.ts';

/** How long a reader may hold up the others, in milliseconds, before it is dropped. */
export const STALL_LIMIT_MS = 30_000;
/** Output that a reader takes at a time, in bytes: large enough to join small events into one write. */
const BATCH_BYTES = 64 * 1024;

/** One event and the way to the next: whoever holds a node can read on, and what nobody holds is collected. */
export interface Node {
  readonly event: ProcessEvent | null;
  /** What it and all before it cost, in bytes. */
  readonly position: number;
  next: Node | null;
}

/** What a reader reads from. */
export interface Source {
  readonly ended: boolean;
  /** A reader has taken something. */
  advanced(): void;
  remove(reader: Reader): void;
}

/** A cursor in a process' output. */
export class Reader implements Feed<ProcessEvent> {
  readonly #source: Source;
  #cursor: Node;
  #before: readonly ProcessEvent[];
  #wake: (() => void) | null = null;
  #stall: NodeJS.Timeout | null = null;
  #failure: EnvdError | null = null;
  #disposed = false;

  /** `before`: this reader's own, ahead of what it shares with others behind `cursor`. */
  constructor(source: Source, before: readonly ProcessEvent[], cursor: Node) {
    this.#source = source;
    this.#before = before;
    this.#cursor = cursor;
  }

  get position(): number {
    return this.#cursor.position;
  }

  async next(): Promise<readonly ProcessEvent[] | null> {
    for (;;) {
      if (this.#failure) throw this.#failure;
      if (this.#disposed) return null;
      const events = this.#take();
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

  #take(): readonly ProcessEvent[] {
    if (this.#before.length > 0) {
      const events = this.#before;
      this.#before = [];
      return events;
    }
    const events: ProcessEvent[] = [];
    const end = this.#cursor.position + BATCH_BYTES;
    for (let next = this.#cursor.next; next && this.#cursor.position < end; next = next.next) {
      this.#cursor = next;
      if (next.event) events.push(next.event);
    }
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
