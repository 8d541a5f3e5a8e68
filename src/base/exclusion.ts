import { EventEmitter } from 'node:events';
import { EnvdError } from './errors.ts';

/** A lock that one operation holds at a time. Others are refused and do not wait. It emits `acquire` when an operation begins. */
export class ExclusiveLock extends EventEmitter<{ acquire: [] }> {
  #holder: string | null = null;

  get isHeld(): boolean {
    return this.#holder !== null;
  }

  /** Takes the lock until the result is disposed of. Throws `unavailable` while another operation holds it. */
  acquire(operation: string): Disposable {
    if (this.#holder !== null) {
      const article = /^[aeiou]/.test(this.#holder) ? 'an' : 'a';
      const which = this.#holder === operation ? 'another' : article;
      throw new EnvdError('unavailable', `cannot ${operation} now: ${which} ${this.#holder} is under way`);
    }
    this.#holder = operation;
    this.emit('acquire');
    return {
      [Symbol.dispose]: () => {
        this.#holder = null;
      },
    };
  }
}

/** The most calls with one key that wait, unless the creator of the queue sets another limit. */
const WAITING_LIMIT = 64;

/** Runs calls with the same key one at a time, in order, and calls with different keys concurrently. */
export class KeyedQueue {
  readonly #name: string;
  readonly #limit: number;
  /** The calls that wait, for each key with a call that runs. */
  readonly #waiting = new Map<string, (() => void)[]>();

  /** `name` is the operation in error messages, such as `init`. */
  constructor(name: string, limit = WAITING_LIMIT) {
    this.#name = name;
    this.#limit = limit;
  }

  /** Whether no call is running or waiting. */
  get isIdle(): boolean {
    return this.#waiting.size === 0;
  }

  /** Settles as `work` does. Throws `resource_exhausted` immediately while too many calls with this key wait. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const waiting = this.#waiting.get(key);
    if (waiting) await this.#turn(waiting);
    else this.#waiting.set(key, []);
    try {
      return await work();
    } finally {
      // The key remains busy, so that a new call cannot overtake the next one.
      const next = this.#waiting.get(key)?.shift();
      if (next) next();
      else this.#waiting.delete(key);
    }
  }

  #turn(waiting: (() => void)[]): Promise<void> {
    if (waiting.length >= this.#limit) {
      const text = `cannot ${this.#name} now: ${this.#limit} others are waiting: try again later`;
      throw new EnvdError('resource_exhausted', text);
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    waiting.push(resolve);
    return promise;
  }
}
