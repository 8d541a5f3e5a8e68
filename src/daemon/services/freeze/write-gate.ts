import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';

/**
 * What the daemon's own changes to files go through. A shut gate refuses new ones and makes those under way wait, so
 * that no thread of the daemon ever sleeps in a write to a frozen file system.
 */
export class WriteGate {
  #inside = 0;
  #opened: PromiseWithResolvers<void> | null = null;
  #rested: PromiseWithResolvers<void> | null = null;

  get isShut(): boolean {
    return this.#opened !== null;
  }

  /** Runs a change inside the gate. Throws `unavailable` while it is shut. */
  async run<T>(change: () => Promise<T>): Promise<T> {
    if (this.isShut) throw new EnvdError('unavailable', 'cannot change files now: the file system is frozen');
    this.#inside++;
    try {
      return await change();
    } finally {
      this.#leave();
    }
  }

  /**
   * For a change that runs inside: what `source` brings, outside of the gate while it is waited for and inside again
   * when it is there. A client that is slow holds up no freeze, and what it sends waits for the thaw.
   */
  async *outside<T>(source: AsyncIterable<T>): AsyncGenerator<T> {
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

  shut(): void {
    this.#opened ??= Promise.withResolvers();
  }

  open(): void {
    this.#opened?.resolve();
    this.#opened = null;
  }

  /** Resolves when nothing is inside. Throws `unavailable` when that takes longer than `limitMs`. */
  async rest(limitMs: number): Promise<void> {
    if (this.#inside === 0) return;
    this.#rested ??= Promise.withResolvers();
    await within(limitMs, this.#rested.promise, () => {
      throw new EnvdError('unavailable', 'cannot fsfreeze now: files are being changed');
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
    this.#rested?.resolve();
    this.#rested = null;
  }
}
