import { usedAt } from './idle.ts';
import type { Registration, Sandbox } from './sandbox.ts';
import { LEASE_MS, register, toRemoving, transition } from './transitions.ts';

/** A create hook describes the machine that it has made with these members. */
export type Machine = Pick<Registration, 'address' | 'ip' | 'port' | 'accessToken' | 'envdVersion'> &
  Partial<Pick<Registration, 'host' | 'alias' | 'cpuCount' | 'memoryMB' | 'diskSizeMB'>>;

/**
 * Returns a new record, which the gateway `owner` has claimed. A hook makes its machine next, and no request reaches it yet.
 */
export function beginCreation(registration: Registration, owner: string, now: number): Sandbox {
  const claim = { owner, until: now + LEASE_MS };
  return { ...register(null, registration, 0, now), phase: 'creating', isCreated: true, expiries: 1, claim };
}

/** Records the new machine before it is used, so that a gateway that takes over knows what to remove. */
export function placeMachine(sandbox: Sandbox, machine: Machine, now: number): Sandbox {
  return sandbox.isDoomed ? toRemoving({ ...sandbox, ...machine }, now) : { ...sandbox, ...machine };
}

/** Lets a sandbox, whose daemon has its token, run for `seconds`. */
export function endCreation(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const deadline = now + seconds * 1000;
  return transition(sandbox, 'running', { ...usedAt(sandbox, now), claim: null, startedAt: now, deadline });
}

/**
 * Ends a creation that failed, or whose client is gone with its gateway. If there is a kill hook (`canRemove`), it removes
 * what exists of the machine. Otherwise returns null, which removes only the record.
 */
export function failCreation(sandbox: Sandbox, canRemove: boolean, now: number): Sandbox | null {
  return canRemove ? toRemoving({ endCause: 'failure', ...sandbox }, now) : null;
}
