import { LEASE_MS } from '../leases/transitions.ts';

/**
 * The lease of this gateway on a sandbox, as far as it can know without asking: by its own clock, from before it asked
 * for it. A gateway that was suspended for longer must not call the guest, on which another one works by then.
 */
export class HeldLease {
  /** Aborts when it is lost, or the gateway stops. */
  readonly signal: AbortSignal;
  readonly #lost = new AbortController();
  #until = 0;

  /** `since`: when it was asked for, by `performance.now()`. */
  constructor(since: number, stop: AbortSignal) {
    this.signal = AbortSignal.any([stop, this.#lost.signal]);
    this.renewed(since);
  }

  renewed(since: number): void {
    this.#until = since + LEASE_MS;
  }

  lose(): void {
    this.#lost.abort();
  }

  /** Throws when it may have lapsed. */
  assertHeld(): void {
    if (performance.now() >= this.#until) this.lose();
    this.signal.throwIfAborted();
  }
}
