import { usedAt } from './idle.ts';
import type { Sandbox } from './sandbox.ts';
import { forgottenAfter, LEASE_MS, retryDelay, toRemoving, transition } from './transitions.ts';

/**
 * Claims a paused sandbox for `owner`, which resumes it for `seconds`, or for the time that it had left. Returns the record
 * unchanged if the last failure is too recent.
 */
export function beginResume(sandbox: Sandbox, owner: string, now: number, seconds?: number): Sandbox {
  if (sandbox.retryAt > now) return sandbox;
  const claim = { owner, until: now + LEASE_MS };
  // The deadline must not be later than now, because a later one means that the hook has registered the sandbox again.
  const deadline = Math.min(sandbox.deadline, now);
  const asked = seconds === undefined ? {} : { leftMs: seconds * 1000 };
  const change = { claim, deadline, expiries: sandbox.expiries + 1, observed: null, ...asked };
  return transition(sandbox, 'resuming', change);
}

/** Ends a successful resume of the machine. The guest is still frozen, as in its snapshot, and is thawed next. */
export function endResume(resumed: Sandbox, seconds: number, now: number): Sandbox {
  if (resumed.isDoomed) return toRemoving(resumed, now);
  const { leftMs = seconds * 1000, ...sandbox } = resumed;
  const deadline = sandbox.deadline > now ? sandbox.deadline : now + leftMs;
  const change = { ...usedAt(sandbox, now), deadline, failures: 0, retryAt: now, isResumed: true };
  return transition(sandbox, 'thawing', change);
}

/** Lets a sandbox stay paused after the resume hook has failed. `keptMs` is null if it is never forgotten. */
export function failResume(sandbox: Sandbox, keptMs: number | null, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const failures = sandbox.failures + 1;
  const change = { claim: null, failures, retryAt: now + retryDelay(failures) };
  return transition(sandbox, 'paused', { ...change, ...forgottenAfter(keptMs, now) });
}
