import { randomUUID } from 'node:crypto';
import { EnvdError } from '../../base/errors.ts';
import { recordUse, usedAt } from './idle.ts';
import {
  dueAt,
  isGone,
  type ObservedFreeze,
  outcomeOf,
  type Paused,
  type Phase,
  type Registration,
  type Sandbox,
} from './sandbox.ts';

/**
 * All changes of a record, as pure functions; the registry applies each atomically. `now` is Unix ms by the registry's
 * clock.
 */

/** How long a claim holds unless renewed, in ms. After that another gateway takes over. */
export const LEASE_MS = 5000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;

/**
 * The transitions between phases. Besides, a registration leads from `running` and `paused` to `running`,
 * and a paused sandbox is finally forgotten.
 */
const TRANSITIONS: Readonly<Record<Phase, readonly Phase[]>> = {
  running: ['expiring', 'removing'],
  expiring: ['committed', 'thawing', 'removing'],
  committed: ['paused', 'thawing', 'removing'],
  thawing: ['running', 'expiring', 'removing'],
  paused: ['resuming', 'removing'],
  resuming: ['thawing', 'paused', 'removing'],
  removing: [],
  creating: ['running', 'removing'],
};

/** The phases in which a hook may be running; it must end before another one begins. */
const IN_HOOK: readonly Phase[] = ['committed', 'resuming', 'creating'];

export function transition(sandbox: Sandbox, phase: Phase, change: Partial<Sandbox> = {}): Sandbox {
  if (!TRANSITIONS[sandbox.phase].includes(phase)) {
    throw new EnvdError('internal', `sandbox '${sandbox.id}' cannot go from ${sandbox.phase} to ${phase}`);
  }
  return { ...sandbox, ...change, phase };
}

/**
 * A new record that runs for `seconds`. While a hook resumes the machine it says where that is from now on: the sandbox runs when the hook
 * has ended and its guest is thawed. Throws `already_exists` while an earlier one is expired or removed.
 */
export function register(
  before: Sandbox | null,
  registration: Registration,
  seconds: number,
  now: number,
): Sandbox {
  if (before && (before.isDoomed || !['running', 'paused', 'resuming'].includes(before.phase))) {
    const { id, phase } = before;
    const message = `sandbox '${id}' is about to end (${phase}): register it again when that is over`;
    throw new EnvdError('already_exists', message);
  }
  const deadline = now + seconds * 1000;
  if (before?.phase === 'resuming') return { ...before, ...registration, deadline };
  return {
    ...registration,
    ...privacyOf(before, registration),
    ...usedAt(registration, now),
    incarnation: randomUUID(),
    startedAt: now,
    deadline,
    phase: 'running',
    claim: null,
    expiries: 0,
    failures: 0,
    retryAt: 0,
    observed: null,
  };
}

/** What is private stays so for the same owner, unless the registration says otherwise. */
function privacyOf(before: Sandbox | null, { owner, trafficToken }: Registration) {
  const isKept = trafficToken === undefined && before?.owner === owner;
  return { trafficToken: (isKept ? before?.trafficToken : trafficToken) ?? null };
}

/**
 * Sets the deadline to `seconds` from now. Failures stay, since whoever sets it may be the one who makes it fail. Throws
 * `not_found` from `committed` on.
 */
export function setTimeToLive(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  const { pausedFrom: _, ...rest } = uncommitted(sandbox);
  return {
    ...rest,
    ...usedAt(rest, now),
    deadline: now + seconds * 1000,
    retryAt: Math.min(rest.retryAt, now),
  };
}

/** Like `setTimeToLive`, but never brings the deadline forward. */
export function extend(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  const deadline = now + seconds * 1000;
  if (deadline > uncommitted(sandbox).deadline) return setTimeToLive(sandbox, seconds, now);
  return recordUse(sandbox, now);
}

function uncommitted(sandbox: Sandbox): Sandbox {
  if (sandbox.phase === 'creating')
    throw new EnvdError('not_found', `sandbox '${sandbox.id}' is still being created`);
  if (!isGone(sandbox)) return sandbox;
  const end = sandbox.phase === 'paused' || sandbox.phase === 'resuming' ? 'is paused' : 'has expired';
  throw new EnvdError('not_found', `sandbox '${sandbox.id}' ${end}`);
}

/**
 * Makes a sandbox expire now, to be paused whatever its registration says. Throws `conflict` when it is paused already,
 * `not_found` when it is removed.
 */
export function pause(sandbox: Sandbox, now: number): Sandbox {
  const { id, phase, deadline, pausedFrom = deadline } = sandbox;
  if (phase === 'paused' || phase === 'resuming')
    throw new EnvdError('conflict', `sandbox '${id}' is paused`);
  if (phase === 'committed' && outcomeOf(sandbox) === 'pause') return { ...sandbox, pausedFrom };
  const retryAt = Math.min(sandbox.retryAt, now);
  return { ...uncommitted(sandbox), deadline: Math.min(deadline, now), pausedFrom, retryAt };
}

/** Has the machine of a sandbox removed by a hook, as soon as no other hook runs for it. */
export function removeSandbox(sandbox: Sandbox, now: number): Sandbox {
  if (sandbox.phase === 'removing' || sandbox.isDoomed) return sandbox;
  if (IN_HOOK.includes(sandbox.phase)) return { ...sandbox, isDoomed: true };
  return toRemoving({ ...sandbox, failures: 0 }, now);
}

/** Begins the removal of the machine of a sandbox, at `retryAt`. */
export function toRemoving(sandbox: Sandbox, retryAt: number): Sandbox {
  return transition(sandbox, 'removing', { ...nextAttempt(sandbox), retryAt });
}

/** The members of a new attempt, for which hooks run once. */
function nextAttempt({ expiries }: Sandbox) {
  return { claim: null, expiries: expiries + 1 };
}

/** The kill hook has failed, and is retried. */
export function failRemoval(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  return { ...sandbox, ...nextAttempt(sandbox), failures, retryAt: now + retryDelay(failures) };
}

/** Claims a paused sandbox for `owner` to resume it; returns the record unchanged while an earlier failure is too recent. */
export function beginResume(sandbox: Sandbox, owner: string, now: number): Sandbox {
  if (sandbox.retryAt > now) return sandbox;
  const claim = { owner, until: now + LEASE_MS };
  // A later deadline is then that of a registration which the hook has made.
  const deadline = Math.min(sandbox.deadline, now);
  return transition(sandbox, 'resuming', { claim, deadline, expiries: sandbox.expiries + 1, observed: null });
}

/** The hook has resumed the machine. The guest is still frozen, as in its snapshot, and is thawed next. */
export function endResume(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const deadline = sandbox.deadline > now ? sandbox.deadline : now + seconds * 1000;
  const change = { ...usedAt(sandbox, now), deadline, failures: 0, retryAt: now, isResumed: true };
  return transition(sandbox, 'thawing', change);
}

/** The resume hook has failed. */
export function failResume(sandbox: Sandbox, keptMs: number | null, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const failures = sandbox.failures + 1;
  const change = { claim: null, failures, retryAt: now + retryDelay(failures) };
  return transition(sandbox, 'paused', { ...change, ...forgottenAfter(keptMs, now) });
}

function forgottenAfter(keptMs: number | null, now: number): Pick<Sandbox, 'forgetAt'> {
  return keptMs === null ? {} : { forgetAt: now + keptMs };
}

/** Sets when a paused sandbox is forgotten, if it would be kept for ever. */
export function date(sandbox: Sandbox, keptMs: number, now: number): Sandbox {
  const isEndless = sandbox.phase === 'paused' && sandbox.forgetAt === undefined;
  return isEndless ? { ...sandbox, ...forgottenAfter(keptMs, now) } : sandbox;
}

/**
 * Claims a sandbox that is due for `owner`; returns the record unchanged when it is not due. Null: it has been paused
 * for so long that it is forgotten.
 */
export function acquire(sandbox: Sandbox, owner: string, now: number): Sandbox | null {
  if (dueAt(sandbox) > now) return sandbox;
  if (sandbox.phase === 'paused') return null;
  const claim = { owner, until: now + LEASE_MS };
  // A sandbox that seems to be idle is claimed only, because its daemon is asked first whether it is used.
  if (sandbox.phase !== 'running' || sandbox.deadline > now) return { ...sandbox, claim };
  return transition(sandbox, 'expiring', { claim, expiries: sandbox.expiries + 1, observed: null });
}

export function renew(sandbox: Sandbox, owner: string, now: number): Sandbox {
  return { ...sandbox, claim: { owner, until: now + LEASE_MS } };
}

/** The guest is frozen. From `committed` on there is no way back, unless the deadline has been moved meanwhile. */
export function commitExpiry(sandbox: Sandbox, observed: ObservedFreeze, now: number): Sandbox {
  return sandbox.deadline > now
    ? transition(sandbox, 'thawing')
    : transition(sandbox, 'committed', { observed });
}

/** How often an expiry may fail before it goes on though its guest cannot be frozen. */
const GRACE = 3;

/** The expiry has failed: the guest is thawed, then the expiry is retried. */
export function fail(sandbox: Sandbox, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const { pausedFrom: deadline = sandbox.deadline, ...rest } = sandbox;
  const failures = sandbox.failures + 1;
  return transition(rest, 'thawing', { deadline, failures, retryAt: now + retryDelay(failures) });
}

/** The guest could not be frozen: a failure, but one that is to be removed, or has failed too often, goes on nevertheless. */
export function failFreeze(sandbox: Sandbox, now: number): Sandbox {
  const mustEnd = outcomeOf(sandbox) === 'remove' || sandbox.isResumed || sandbox.failures >= GRACE;
  return mustEnd ? commitExpiry(sandbox, { freeze: null, collapse: null }, now) : fail(sandbox, now);
}

/** The hook has succeeded, or there is none. Null: the record is removed. */
export function complete(sandbox: Sandbox, { byHook, keptMs }: Paused, now: number): Sandbox | null {
  const outcome = outcomeOf(sandbox);
  if (outcome === 'remove') return null;
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const { pausedFrom: _, isResumed: _resumed, machine: _machine, ...rest } = sandbox;
  const change = { claim: null, failures: 0, retryAt: 0, ...forgottenAfter(keptMs, now) };
  return transition(rest, 'paused', { ...change, ...(!byHook && { machine: 'frozen' }) });
}

/** The guest has been thawed. */
export function resume(sandbox: Sandbox): Sandbox {
  const { forgetAt: _, machine: _machine, isResumed: _resumed, ...rest } = sandbox;
  return transition(rest, 'running', { claim: null, observed: null });
}

/**
 * The guest could not be thawed, which is retried. If it is not thawed by its deadline, it expires again: nobody knows
 * whether it runs, and a guest that could stay in this phase would never end.
 */
export function postpone(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  const retryAt = now + retryDelay(failures);
  if (sandbox.deadline > now) return { ...sandbox, claim: null, failures, retryAt };
  const change = { ...nextAttempt(sandbox), failures, retryAt };
  // What a hook has resumed it can pause again, whatever its registration says.
  return transition(
    sandbox,
    'expiring',
    sandbox.isResumed ? { ...change, pausedFrom: sandbox.deadline } : change,
  );
}

/** 1 s, doubled with each failure in a row, at most 5 min; in ms. */
function retryDelay(failures: number): number {
  return Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
}
