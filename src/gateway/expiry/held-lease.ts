import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import type { Sandbox } from '../leases/sandbox.ts';
import { LEASE_MS, renew } from '../leases/transitions.ts';
import type { Registry } from '../registry/registry.ts';

/**
 * This gateway's lease on a sandbox. By its own clock, the gateway counts the lease from the moment before it asked for it.
 * If the gateway was suspended for longer, it must not call the guest, because another gateway may be working on it.
 */
export class HeldLease {
  /** Aborts when the lease is lost or the gateway stops. */
  readonly signal: AbortSignal;
  readonly #lost = new AbortController();
  #until = 0;

  /** @param since the time at which the lease was asked for, by `monotonicMs()` */
  constructor(since: number, stop: AbortSignal) {
    this.signal = AbortSignal.any([stop, this.#lost.signal]);
    this.renewed(since);
  }

  /** Extends the lease. `since` is the time at which the renewal was asked for, by `monotonicMs()`. */
  renewed(since: number): void {
    this.#until = since + LEASE_MS;
  }

  lose(): void {
    this.#lost.abort();
  }

  /** Throws the reason of `signal` when the lease may have lapsed. */
  assertHeld(): void {
    if (monotonicMs() >= this.#until) this.lose();
    this.signal.throwIfAborted();
  }
}

export interface RenewalParts {
  readonly registry: Registry;
  /** Identifies this run of this gateway. */
  readonly owner: string;
  readonly logger: Logger;
}

/** Renews the lease on a sandbox while the attempt is the same. Returns true if the deadline was moved during the freeze. */
export async function renewLease(
  { registry, owner, logger }: RenewalParts,
  { id, incarnation, expiries }: Sandbox,
  lease: HeldLease,
): Promise<boolean> {
  const since = monotonicMs();
  try {
    const sandbox = await registry.change(id, (current, now) => {
      const mine = current.claim?.owner === owner && current.incarnation === incarnation;
      return mine && current.expiries === expiries ? renew(current, owner, now) : current;
    });
    if (!sandbox?.claim) return false;
    if (sandbox.claim.owner !== owner) {
      lease.lose();
      return false;
    }
    lease.renewed(since);
    return sandbox.phase === 'expiring' && sandbox.deadline > sandbox.claim.until - LEASE_MS;
  } catch (error) {
    logger.warn(
      { sandboxID: id, reason: messageOf(error) },
      'the claim on a sandbox could not be renewed: another gateway takes over when it lapses',
    );
    return false;
  }
}

/** Returns whether the gateway `owner` still has the claim that it had on `sandbox`, in the same phase of the same attempt. */
export function isSameAttempt(current: Sandbox, sandbox: Sandbox, owner: string): boolean {
  return (
    current.claim?.owner === owner &&
    current.incarnation === sandbox.incarnation &&
    current.expiries === sandbox.expiries &&
    current.phase === sandbox.phase
  );
}
