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
