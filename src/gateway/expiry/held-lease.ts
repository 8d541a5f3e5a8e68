import { monotonicMs } from '../../base/monotonic.ts';
import { LEASE_MS } from '../leases/transitions.ts';

/**
 * This gateway's lease on a sandbox, as far as the gateway can know without asking: by its own clock, counted from
 * before it asked. A gateway that was suspended for longer must not call the guest, on which another gateway may be
 * working.
 */
export class HeldLease {
  /** Aborts when the lease is lost or the gateway stops. */
  readonly signal: AbortSignal;
  readonly #lost = new AbortController();
  #until = 0;

  /** `since`: when the lease was asked for, by `monotonicMs()`. */
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

  /** Throws when the lease may have lapsed. */
  assertHeld(): void {
    if (monotonicMs() >= this.#until) this.lose();
    this.signal.throwIfAborted();
  }
}
