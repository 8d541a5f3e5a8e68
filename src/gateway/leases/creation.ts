import { usedAt } from './idle.ts';
import type { Registration, Sandbox } from './sandbox.ts';
import { LEASE_MS, register, toRemoving, transition } from './transitions.ts';

/** What a create hook says of the machine that it has made. */
export type Machine = Pick<Registration, 'address' | 'ip' | 'port' | 'accessToken' | 'envdVersion'> &
  Partial<Pick<Registration, 'host' | 'alias' | 'cpuCount' | 'memoryMB' | 'diskSizeMB'>>;

/** A new record, claimed by the gateway `owner`, whose machine a hook is about to make. No request reaches it yet. */
export function beginCreation(registration: Registration, owner: string, now: number): Sandbox {
  const claim = { owner, until: now + LEASE_MS };
  return { ...register(null, registration, 0, now), phase: 'creating', isCreated: true, expiries: 1, claim };
}

/** The machine is there. It is recorded before it is used, so that a gateway that takes over knows what to remove. */
export function placeMachine(sandbox: Sandbox, machine: Machine, now: number): Sandbox {
  return sandbox.isDoomed ? toRemoving({ ...sandbox, ...machine }, now) : { ...sandbox, ...machine };
}

/** The daemon has its token: the sandbox runs for `seconds`. */
export function endCreation(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const deadline = now + seconds * 1000;
  return transition(sandbox, 'running', { ...usedAt(sandbox, now), claim: null, startedAt: now, deadline });
}

/**
 * The creation has failed, or the gateway that made it is gone, and with it the client. What there is of a machine is removed by the
 * kill hook; without one only the record is. Null: the record is removed.
 */
export function failCreation(sandbox: Sandbox, canRemove: boolean, now: number): Sandbox | null {
  return canRemove ? toRemoving(sandbox, now) : null;
}
