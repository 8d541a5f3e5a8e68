import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';

interface Run {
  readonly key: string;
  work(): Promise<void>;
  /** Functions that settle the calls that wait for this run: with an error, or with null after a success. */
  readonly waiting: Set<(error: unknown) => void>;
}

/**
 * Runs idempotent work that may hang, one run at a time. Calls with the same key share a run, which goes on when they have
 * gone. A call with another key waits for the run under way, and displaces the run that waited before it.
 */
export class SharedRuns {
  #current: Run | null = null;
  #next: Run | null = null;

  /**
   * Waits for a run with this key. Throws its error, the reason of `signal`, and `unavailable` when a later call has another
   * key.
   */
  async join(key: string, work: () => Promise<void>, signal: AbortSignal): Promise<void> {
    const run = this.#find(key) ?? this.#add({ key, work, waiting: new Set() });
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const settle = (error: unknown) => (error === null ? resolve() : reject(error));
    run.waiting.add(settle);
    const stopListening = onAbort(signal, () => reject(signal.reason));
    try {
      await promise;
    } finally {
      stopListening();
      run.waiting.delete(settle);
    }
  }

  /** Returns the run with this key, if there is one. Displaces the run that waits, if it has another key. */
  #find(key: string): Run | null {
    if (this.#next?.key === key) return this.#next;
    const displaced = this.#next;
    this.#next = null;
    if (displaced)
      end(displaced, new EnvdError('unavailable', 'a later call with other values has replaced this one'));
    return this.#current?.key === key ? this.#current : null;
  }

  #add(run: Run): Run {
    if (this.#current) this.#next = run;
    else void this.#start(run);
    return run;
  }

  async #start(run: Run): Promise<void> {
    this.#current = run;
    const error = await run.work().then(
      () => null,
      (reason: unknown) => reason ?? new Error('unknown'),
    );
    const next = this.#next;
    [this.#current, this.#next] = [null, null];
    if (next) void this.#start(next);
    end(run, error);
  }
}

function end({ waiting }: Run, error: unknown): void {
  for (const settle of waiting) settle(error);
}
