import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';

/**
 * Admits the daemon's own changes to files. While the gate is shut, new changes are refused and those under way wait, so that
 * no thread of the daemon blocks in a write to a frozen file system.
 */
export class WriteGate {
  #inside = 0;
  #opened: PromiseWithResolvers<void> | null = null;
  #idle: PromiseWithResolvers<void> | null = null;

  get isShut(): boolean {
    return this.#opened !== null;
  }

  /** Throws `unavailable` while it is shut. */
  assertOpen(): void {
    if (!this.isShut) return;
    const text = 'cannot change files: the file system is frozen, try again after the thaw';
    throw new EnvdError('unavailable', text);
  }

  /** Runs a change inside the gate. Throws `unavailable` while it is shut. */
  async run<T>(change: () => Promise<T>): Promise<T> {
    this.assertOpen();
    return this.runStep(change);
  }

  /**
   * Runs one step of a change that waits for its client between its steps. While the gate is shut, it waits before the step.
   * So a slow client does not delay a freeze, and its data wait for the thaw.
   */
  async runStep<T>(step: () => Promise<T>): Promise<T> {
    while (this.#opened) await this.#opened.promise;
    this.#inside++;
    try {
      return await step();
    } finally {
      this.#leave();
    }
  }

  /**
   * Yields the items of `source` to a change inside the gate. It leaves the gate while it waits for an item, and enters it
   * again when the item is there.
   */
  async *leaveWhileWaiting<T>(source: AsyncIterable<T>): AsyncGenerator<T> {
    const items = source[Symbol.asyncIterator]();
    try {
      for (;;) {
        const { value, done } = await this.#stepOut(() => items.next());
        if (done) return;
        yield value;
      }
    } finally {
      await items.return?.();
    }
  }

  /**
   * Runs a step that begins while its change is inside the gate, and may end after the change has left. It does not wait for
   * the gate, because the change may be waiting for the step.
   */
  async runOverlapping<T>(step: () => Promise<T>): Promise<T> {
    this.#inside++;
    try {
      return await step();
    } finally {
      this.#leave();
    }
  }

  shut(): void {
    this.#opened ??= Promise.withResolvers();
  }

  open(): void {
    this.#opened?.resolve();
    this.#opened = null;
  }

  /** Resolves when no change is inside. Throws `unavailable`, with what cannot be done, after `limitMs` milliseconds. */
  async whenIdle(limitMs: number, what = 'fsfreeze'): Promise<void> {
    if (this.#inside === 0) return;
    this.#idle ??= Promise.withResolvers();
    await within(limitMs, this.#idle.promise, () => {
      throw new EnvdError('unavailable', `cannot ${what} now: files are being changed, try again later`);
    });
  }

  async #stepOut<T>(wait: () => Promise<T>): Promise<T> {
    this.#leave();
    try {
      return await wait();
    } finally {
      while (this.#opened) await this.#opened.promise;
      this.#inside++;
    }
  }

  #leave(): void {
    if (--this.#inside > 0) return;
    this.#idle?.resolve();
    this.#idle = null;
  }
}
