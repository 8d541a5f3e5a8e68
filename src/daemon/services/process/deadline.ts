import { EnvdError } from '../../../base/errors.ts';
import type { Feed, Taken } from '../../../base/feed.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { ManagedProcess } from './lifecycle/process.ts';
import type { ProcessEvent } from './output/events.ts';
import type { Reader } from './output/reader.ts';

/** Interval between attempts to kill the whole tree, in milliseconds. */
const RETRY_MS = 100;

/** Kills a process at its deadline, also when the client that set it has disconnected. */
export function killAfter(process: ManagedProcess, deadlineMs: number): void {
  process.deadlineAt = monotonicMs() + deadlineMs;
  const expire = () => {
    if (!process.expire()) timer = setTimeout(expire, RETRY_MS).unref();
  };
  let timer = setTimeout(expire, Math.max(0, deadlineMs)).unref();
  void process.ended.then(() => clearTimeout(timer));
}

/**
 * The feed of the client that set a deadline, at which `killAfter` kills the process, regardless of other readers. This
 * feed then ends, after all output, with `deadline_exceeded` instead of the end event.
 */
export class DeadlineFeed implements Feed<ProcessEvent> {
  readonly #feed: Reader;
  readonly #deadlineMs: number;
  #failed = false;

  constructor(feed: Reader, deadlineMs: number) {
    this.#feed = feed;
    this.#deadlineMs = deadlineMs;
  }

  next(bytes?: number): Taken<ProcessEvent> | Promise<Taken<ProcessEvent>> {
    if (this.#failed) throw this.#failure();
    const events = this.#feed.next(bytes);
    return events instanceof Promise ? events.then(this.#checked) : this.#checked(events);
  }

  stalled(): void {
    this.#feed.stalled();
  }

  readonly #checked = (events: Taken<ProcessEvent>): Taken<ProcessEvent> => {
    const last = events?.at(-1);
    if (!events || last?.type !== 'end' || last.reason !== 'deadline') return events;
    this.#failed = true;
    if (events.length === 1) throw this.#failure();
    return events.slice(0, -1);
  };

  #failure(): EnvdError {
    return new EnvdError('deadline_exceeded', `process was killed after ${this.#deadlineMs} ms`);
  }

  [Symbol.dispose](): void {
    this.#feed[Symbol.dispose]();
  }
}
