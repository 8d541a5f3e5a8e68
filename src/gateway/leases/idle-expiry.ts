import { recordUse } from './idle.ts';
import type { Sandbox } from './sandbox.ts';
import { transition } from './transitions.ts';

/** Releases the claim on a sandbox that seemed to be idle but is used. */
export function keepAwake(sandbox: Sandbox, now: number): Sandbox {
  return { ...recordUse(sandbox, now), claim: null };
}

/** Begins the expiry of a claimed sandbox that is idle. Only releases the claim if the sandbox was used meanwhile. */
export function expireIdle(sandbox: Sandbox, now: number): Sandbox {
  if ((sandbox.idleAt ?? Number.POSITIVE_INFINITY) > now) return { ...sandbox, claim: null };
  const change = {
    deadline: Math.min(sandbox.deadline, now),
    expiries: sandbox.expiries + 1,
    observed: null,
    endCause: 'idle',
  } as const;
  return transition(sandbox, 'expiring', change);
}
