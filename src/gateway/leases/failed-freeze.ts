import { keepsMemory, type ObservedFreeze, outcomeOf, type Sandbox } from './sandbox.ts';
import { commitExpiry, fail } from './transitions.ts';

/** After so many failures, an expiry continues although its guest cannot be frozen. */
const GRACE = 3;
const NOT_FROZEN: ObservedFreeze = { freeze: null, collapse: null };

/** Returns whether the processes end with the machine, but the disk stays. They are asked to end, which a frozen one could not do. */
export function givesUpMemory(sandbox: Sandbox): boolean {
  return outcomeOf(sandbox) === 'pause' && !keepsMemory(sandbox);
}

/** Goes on without a freeze. Returns the record unchanged if a client wants to keep the memory by now. */
export function skipFreeze(sandbox: Sandbox, now: number): Sandbox {
  return givesUpMemory(sandbox) ? goOn(sandbox, now) : sandbox;
}

function goOn(sandbox: Sandbox, now: number): Sandbox {
  return commitExpiry(sandbox, NOT_FROZEN, now);
}

/**
 * Counts a failure when the guest could not be frozen. The expiry continues all the same if the sandbox must be removed, or
 * if it has failed too often, because no guest may decide whether it ends.
 */
export function failFreeze(sandbox: Sandbox, now: number): Sandbox {
  return mustEnd(sandbox) ? goOn(sandbox, now) : fail(sandbox, now);
}

function mustEnd(sandbox: Sandbox): boolean {
  return outcomeOf(sandbox) === 'remove' || sandbox.isResumed === true || sandbox.failures >= GRACE;
}

/**
 * Lets a silent sandbox wait for a place among those that have failed, so that it does not delay others. One that must end in
 * any case goes on at once.
 */
export function yieldPlace(sandbox: Sandbox, now: number): Sandbox {
  if (mustEnd(sandbox)) return goOn(sandbox, now);
  return { ...sandbox, isSilent: true, claim: null, retryAt: now };
}
