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

/** So many calls of a queue may wait, unless its creator sets another limit. */
const WAITING_LIMIT = 64;

/** Runs calls one at a time, in order. The number of calls that wait is limited. */
export class SerialQueue {
  readonly #name: string;
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #isBusy = false;

  /** `name` is the operation in error messages, such as `init`. */
  constructor(name: string, limit = WAITING_LIMIT) {
    this.#name = name;
    this.#limit = limit;
  }

  /** Whether no call is running or waiting. */
  get isIdle(): boolean {
    return !this.#isBusy;
  }

  /** Settles as `work` does. Throws `resource_exhausted` immediately while too many calls wait. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isBusy) await this.#turn();
    this.#isBusy = true;
    try {
      return await work();
    } finally {
      // The queue remains busy, so that a new call cannot overtake the next one.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#isBusy = false;
    }
  }

  #turn(): Promise<void> {
    if (this.#waiting.length >= this.#limit) {
      const text = `cannot ${this.#name} now: ${this.#limit} others are waiting: try again later`;
      throw new EnvdError('resource_exhausted', text);
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    return promise;
  }
}

/** Runs calls with the same key one at a time, in order, and calls with different keys concurrently. */
export class KeyedQueues {
  readonly #queues = new Map<string, SerialQueue>();
  readonly #name: string;
  readonly #limit: number;

  /** `name` is the operation in error messages, `limit` the number of calls that may wait per key. */
  constructor(name: string, limit: number) {
    this.#name = name;
    this.#limit = limit;
  }

  /** Settles as `work` does. Throws `resource_exhausted` immediately while too many calls with this key wait. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(key) ?? new SerialQueue(this.#name, this.#limit);
    this.#queues.set(key, queue);
    try {
      return await queue.run(work);
    } finally {
      if (queue.isIdle && this.#queues.get(key) === queue) this.#queues.delete(key);
    }
  }
}
