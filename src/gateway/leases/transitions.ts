import { randomUUID } from 'node:crypto';
import { EnvdError } from '../../base/errors.ts';
import { dueAt, type Observed, type Phase, type Registration, type Sandbox } from './sandbox.ts';

/**
 * All changes of a record, as pure functions; the registry applies each atomically. `now` is Unix ms by the registry's
 * clock.
 */

/** How long a claim holds unless renewed, in ms. After that another gateway takes over. */
export const LEASE_MS = 5000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;

/** The transitions of an expiry. Besides, a registration leads from `running` and `paused` to `running`. */
const TRANSITIONS: Readonly<Record<Phase, readonly Phase[]>> = {
  running: ['expiring'],
  expiring: ['committed', 'thawing'],
  committed: ['paused', 'thawing'],
  thawing: ['running'],
  paused: [],
};

function transition(sandbox: Sandbox, phase: Phase, change: Partial<Sandbox> = {}): Sandbox {
  if (!TRANSITIONS[sandbox.phase].includes(phase)) {
    throw new EnvdError('internal', `sandbox '${sandbox.id}' cannot go from ${sandbox.phase} to ${phase}`);
  }
  return { ...sandbox, ...change, phase };
}

/** A new record that runs for `seconds`. Throws `already_exists` unless there is none, or one that runs or is paused. */
export function register(
  before: Sandbox | null,
  registration: Registration,
  seconds: number,
  now: number,
): Sandbox {
  if (before && before.phase !== 'running' && before.phase !== 'paused') {
    const { id, phase } = before;
    const message = `sandbox '${id}' is about to expire (${phase}): register it again when that is over`;
    throw new EnvdError('already_exists', message);
  }
  return {
    ...registration,
    incarnation: randomUUID(),
    startedAt: now,
    deadline: now + seconds * 1000,
    phase: 'running',
    claim: null,
    expiries: 0,
    failures: 0,
    retryAt: 0,
    observed: null,
  };
}

/** Sets the deadline to `seconds` from now. Throws `not_found` from `committed` on. */
export function setTimeToLive(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  return { ...uncommitted(sandbox), deadline: now + seconds * 1000, failures: 0, retryAt: 0 };
}

/** Like `setTimeToLive`, but never brings the deadline forward. */
export function extend(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  const deadline = now + seconds * 1000;
  return deadline <= uncommitted(sandbox).deadline ? sandbox : setTimeToLive(sandbox, seconds, now);
}

function uncommitted(sandbox: Sandbox): Sandbox {
  if (sandbox.phase !== 'committed' && sandbox.phase !== 'paused') return sandbox;
  const end = sandbox.phase === 'paused' ? 'is paused' : 'has expired';
  throw new EnvdError('not_found', `sandbox '${sandbox.id}' ${end}`);
}

/** Claims a sandbox that is due for `owner`; returns the same record when it is not due. */
export function acquire(sandbox: Sandbox, owner: string, now: number): Sandbox {
  if (dueAt(sandbox) > now) return sandbox;
  const claim = { owner, until: now + LEASE_MS };
  if (sandbox.phase !== 'running') return { ...sandbox, claim };
  return transition(sandbox, 'expiring', { claim, expiries: sandbox.expiries + 1, observed: null });
}

export function renew(sandbox: Sandbox, owner: string, now: number): Sandbox {
  return { ...sandbox, claim: { owner, until: now + LEASE_MS } };
}

/** The guest is frozen. From `committed` on there is no way back, unless the deadline has been moved meanwhile. */
export function commit(sandbox: Sandbox, observed: Observed, now: number): Sandbox {
  return sandbox.deadline > now
    ? transition(sandbox, 'thawing')
    : transition(sandbox, 'committed', { observed });
}

/** The expiry has failed: the guest is to be thawed, then the expiry tried again. */
export function fail(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  return transition(sandbox, 'thawing', { failures, retryAt: now + retryDelay(failures) });
}

/** The hook has succeeded. Null: the record is removed. */
export function complete(sandbox: Sandbox): Sandbox | null {
  return sandbox.onExpiry === 'remove' ? null : transition(sandbox, 'paused', { claim: null, failures: 0 });
}

/** The guest has been thawed. */
export function resume(sandbox: Sandbox): Sandbox {
  return transition(sandbox, 'running', { claim: null, observed: null });
}

/** The guest could not be thawed: that is tried again. */
export function postpone(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  return { ...sandbox, claim: null, failures, retryAt: now + retryDelay(failures) };
}

/** 1 s, doubled with each failure in a row, at most 5 min; in ms. */
function retryDelay(failures: number): number {
  return Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
}
