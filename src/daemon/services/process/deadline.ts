import { EnvdError } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import type { ProcessEvent } from './events.ts';
import type { ManagedProcess } from './process.ts';
import type { Reader } from './reader.ts';

/** Between attempts to kill what could not be reached, in milliseconds. */
const RETRY_MS = 100;

/**
 * The feed of the client that set a deadline. When it passes, the process is killed, whoever still reads; this
 * feed then ends with `deadline_exceeded` in place of the end event, after all output.
 */
export class DeadlineFeed implements Feed<ProcessEvent> {
  readonly #feed: Reader;
  readonly #process: ManagedProcess;
  readonly #deadlineMs: number;
  #failed = false;

  constructor(feed: Reader, process: ManagedProcess, deadlineMs: number) {
    this.#feed = feed;
    this.#process = process;
    this.#deadlineMs = deadlineMs;
    const expire = () => {
      if (!process.expire()) timer = setTimeout(expire, RETRY_MS).unref();
    };
    let timer = setTimeout(expire, deadlineMs).unref();
    // Not cleared by a client that goes away: the deadline is the process'.
    void process.ended.then(() => clearTimeout(timer));
  }

  async next(bytes?: number): Promise<readonly ProcessEvent[] | null> {
    if (this.#failed)
      throw new EnvdError('deadline_exceeded', `process was killed after ${this.#deadlineMs} ms`);
    const events = await this.#feed.next(bytes);
    if (events?.at(-1)?.type !== 'end' || !this.#process.expired) return events;
    this.#failed = true;
    return events.length > 1 ? events.slice(0, -1) : this.next(bytes);
  }

  [Symbol.dispose](): void {
    this.#feed[Symbol.dispose]();
  }
}
