import { EnvdError } from './errors.ts';

/** Lets one operation run at a time; the others are refused, not queued. */
export class ExclusiveLock {
  #holder: string | null = null;

  /** Takes the lock until the result is disposed of. Throws `unavailable` while another operation holds it. */
  acquire(operation: string): Disposable {
    if (this.#holder !== null) {
      const holder = `${this.#holder === operation ? 'another' : 'a'} ${this.#holder}`;
      throw new EnvdError('unavailable', `cannot ${operation} now: ${holder} is under way`);
    }
    this.#holder = operation;
    return { [Symbol.dispose]: () => this.#release() };
  }

  #release(): void {
    this.#holder = null;
  }
}

/** Calls of a queue that may wait while one is under way, unless the queue is told otherwise. */
const WAITING_LIMIT = 64;

/** Runs one call at a time, in the order in which they came; how many may wait is bounded. */
export class SerialQueue {
  readonly #name: string;
  readonly #limit: number;
  readonly #waiting: (() => void)[] = [];
  #isBusy = false;

  /** `name` is what the refusal calls the operation, like `init`. */
  constructor(name: string, limit = WAITING_LIMIT) {
    this.#name = name;
    this.#limit = limit;
  }

  /** Whether nothing is under way and nothing waits. */
  get isIdle(): boolean {
    return !this.#isBusy;
  }

  /** Settles as `work` does. Throws `resource_exhausted`, without running it, while too many others wait. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#isBusy) await this.#turn();
    this.#isBusy = true;
    try {
      return await work();
    } finally {
      // The turn is handed over: nobody who comes meanwhile can take it.
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

/** Runs what has the same key one after the other, in the order of the calls, and different keys side by side. */
export class KeyedQueues {
  readonly #queues = new Map<string, SerialQueue>();
  readonly #name: string;
  readonly #limit: number;

  /** `name`, as of a queue; `limit`: how many calls may wait for each key. */
  constructor(name: string, limit: number) {
    this.#name = name;
    this.#limit = limit;
  }

  /** Settles as `work` does. Throws `resource_exhausted` while too many others with this key wait. */
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
