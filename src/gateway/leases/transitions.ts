import { randomUUID } from 'node:crypto';
import { EnvdError } from '../../base/errors.ts';
import { recordUse, usedAt } from './idle.ts';
import {
  dueAt,
  type EndCause,
  endingOf,
  isGone,
  keepsMemory,
  type ObservedFreeze,
  outcomeOf,
  type Paused,
  type Phase,
  type Registration,
  type Sandbox,
} from './sandbox.ts';

/**
 * This module has all changes of a record as pure functions, which the registry applies atomically. `now` is in Unix ms by the
 * clock of the registry.
 */

/** A claim lapses after this time unless it is renewed, in ms. Then another gateway takes over. */
export const LEASE_MS = 5000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;

/**
 * Each phase can be followed by these. In addition, a registration leads from `running` and `paused` to `running`, and a paused
 * sandbox is forgotten in the end.
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

/** In these phases a hook may be running. It must end before another hook of the sandbox begins. */
const IN_HOOK: readonly Phase[] = ['committed', 'resuming', 'creating'];

/** Returns the record in another phase, with `change` applied. Throws `internal` if that phase cannot follow. */
export function transition(sandbox: Sandbox, phase: Phase, change: Partial<Sandbox> = {}): Sandbox {
  if (!TRANSITIONS[sandbox.phase].includes(phase)) {
    throw new EnvdError('internal', `sandbox '${sandbox.id}' cannot go from ${sandbox.phase} to ${phase}`);
  }
  return { ...sandbox, ...change, phase };
}

/**
 * Returns a new record of a sandbox that runs for `seconds`. While a hook resumes the machine, only updates the record,
 * because the hook may register a new address; the sandbox runs when the hook has ended and its guest is thawed. Throws
 * `already_exists` while the sandbox is being expired, removed or created.
 */
export function register(
  before: Sandbox | null,
  registration: Registration,
  seconds: number,
  now: number,
): Sandbox {
  if (before && (before.isDoomed || !['running', 'paused', 'resuming'].includes(before.phase))) {
    const { id, phase } = before;
    const message = `sandbox '${id}' cannot be registered in its phase (${phase}): try again when that has ended`;
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
 * Sets the deadline to `seconds` from now. Keeps the count of failures, because the client that moves the deadline may also
 * cause them. Throws `not_found` if the expiry is committed, or if the sandbox is paused, removed or being created.
 */
export function setTimeToLive(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  const { pausedFrom: _, endCause: _cause, ...rest } = uncommitted(sandbox);
  return {
    ...rest,
    ...usedAt(rest, now),
    deadline: now + seconds * 1000,
    retryAt: Math.min(rest.retryAt, now),
  };
}

/** Does the same as `setTimeToLive`, but never makes the deadline earlier. */
export function extend(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  const deadline = now + seconds * 1000;
  if (deadline > uncommitted(sandbox).deadline) return setTimeToLive(sandbox, seconds, now);
  return recordUse(sandbox, now);
}

function uncommitted(sandbox: Sandbox): Sandbox {
  if (sandbox.phase === 'creating')
    throw new EnvdError('not_found', `sandbox '${sandbox.id}' is still being created`);
  if (!isGone(sandbox)) return sandbox;
  const ends: Partial<Record<Phase, string>> = {
    paused: 'is paused: resume it first',
    resuming: 'is being resumed: try again when it runs',
  };
  throw new EnvdError('not_found', `sandbox '${sandbox.id}' ${ends[sandbox.phase] ?? endingOf(sandbox)}`);
}

/**
 * Makes a sandbox expire now, and lets the expiry pause it whatever its registration says. Throws `conflict` when the sandbox
 * is paused already, or is being paused without the memory that is to be kept, and `not_found` when it is being removed or created.
 */
export function pause(
  sandbox: Sandbox,
  now: number,
  endCause: EndCause = 'request',
  pauseMemory = sandbox.keepMemory ?? true,
): Sandbox {
  const { id, phase, deadline, pausedFrom = deadline } = sandbox;
  if (phase === 'paused' || phase === 'resuming')
    throw new EnvdError('conflict', `sandbox '${id}' is already paused`);
  // The hook runs already.
  if (phase === 'committed' && outcomeOf(sandbox) === 'pause') {
    if (pauseMemory && !keepsMemory(sandbox))
      throw new EnvdError('conflict', `sandbox '${id}' is already being paused without its memory`);
    return { ...sandbox, pausedFrom, pauseMemory: keepsMemory(sandbox) };
  }
  const retryAt = Math.min(sandbox.retryAt, now);
  const begun = { deadline: Math.min(deadline, now), pausedFrom, pauseMemory, retryAt, endCause };
  const { refusal: _, ...rest } = uncommitted(sandbox);
  return { ...rest, ...begun };
}

/** Lets a hook remove the machine of a sandbox as soon as no other hook runs for it. */
export function removeSandbox(sandbox: Sandbox, now: number, endCause: EndCause = 'request'): Sandbox {
  // Who removes a sandbox does not wait until its clients were told how its machine has ended.
  const isTold = sandbox.endCause === 'ended' && sandbox.failures === 0 && sandbox.retryAt > now;
  if (sandbox.phase === 'removing' && isTold) return { ...sandbox, retryAt: now };
  if (sandbox.phase === 'removing' || sandbox.isDoomed) return sandbox;
  if (IN_HOOK.includes(sandbox.phase)) return { ...sandbox, isDoomed: true, endCause };
  return toRemoving({ ...sandbox, failures: 0, endCause }, now);
}

/** Begins the removal of the machine of a sandbox, at `retryAt`. */
export function toRemoving(sandbox: Sandbox, retryAt: number): Sandbox {
  return transition(sandbox, 'removing', { ...nextAttempt(sandbox), retryAt });
}

/** Returns the members of a new attempt. Its id is new, so that hooks run once more. */
function nextAttempt({ expiries }: Sandbox) {
  return { claim: null, expiries: expiries + 1 };
}

/** Schedules another attempt after the kill hook has failed. */
export function failRemoval(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  return { ...sandbox, ...nextAttempt(sandbox), failures, retryAt: now + retryDelay(failures) };
}

/** Returns when a paused sandbox is forgotten; `keptMs` is null if it never is. */
export function forgottenAfter(keptMs: number | null, now: number): Pick<Sandbox, 'forgetAt'> {
  return keptMs === null ? {} : { forgetAt: now + keptMs };
}

/** Sets the time at which a paused sandbox is forgotten, if it has none. */
export function date(sandbox: Sandbox, keptMs: number, now: number): Sandbox {
  const isEndless = sandbox.phase === 'paused' && sandbox.forgetAt === undefined;
  return isEndless ? { ...sandbox, ...forgottenAfter(keptMs, now) } : sandbox;
}

/**
 * Claims a sandbox that is due for the gateway `owner`. Returns the record unchanged if it is not due. One that was paused for
 * so long that it is forgotten is removed by a hook; without such a hook (`canRemove`), returns null.
 */
export function acquire(sandbox: Sandbox, owner: string, now: number, canRemove = false): Sandbox | null {
  if (dueAt(sandbox) > now) return sandbox;
  const claim = { owner, until: now + LEASE_MS };
  if (sandbox.phase === 'paused')
    return canRemove ? { ...removeSandbox(sandbox, now, 'forgotten'), claim } : null;
  // A sandbox that seems to be idle is only claimed, because its daemon is asked first whether processes run.
  if (sandbox.phase !== 'running' || sandbox.deadline > now) return { ...sandbox, claim };
  return transition(sandbox, 'expiring', { claim, expiries: sandbox.expiries + 1, observed: null });
}

/** Extends the claim of the gateway `owner` by `LEASE_MS` from now. */
export function renew(sandbox: Sandbox, owner: string, now: number): Sandbox {
  return { ...sandbox, claim: { owner, until: now + LEASE_MS } };
}

/**
 * Commits the expiry of a frozen guest, after which it cannot be averted. If the deadline was moved meanwhile, thaws the
 * guest instead.
 */
export function commitExpiry(before: Sandbox, observed: ObservedFreeze, now: number): Sandbox {
  const { isSilent: _, ...sandbox } = before;
  return sandbox.deadline > now
    ? transition(sandbox, 'thawing')
    : transition(sandbox, 'committed', { observed });
}

/** Lets the guest thaw after a failed expiry, which is then retried. */
export function fail(sandbox: Sandbox, now: number): Sandbox {
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const { pausedFrom: deadline = sandbox.deadline, isSilent: _, ...rest } = sandbox;
  const failures = sandbox.failures + 1;
  return transition(rest, 'thawing', { deadline, failures, retryAt: now + retryDelay(failures) });
}

/** Ends an expiry whose hook has succeeded, or that has no hook. Returns null if the record must be removed. */
export function complete(
  sandbox: Sandbox,
  { byHook, keptMs, canRemove = false }: Paused,
  now: number,
): Sandbox | null {
  const outcome = outcomeOf(sandbox);
  // Without a hook for expiries, the machine still exists.
  if (outcome === 'remove') return canRemove && !byHook ? toRemoving(sandbox, now) : null;
  if (sandbox.isDoomed) return toRemoving(sandbox, now);
  const { pausedFrom: _, isResumed: _resumed, machine: _machine, leftMs: _left, ...others } = sandbox;
  const { endCause: _cause, pauseMemory: _memory, ...rest } = others;
  const leftMs = (sandbox.pausedFrom ?? 0) - sandbox.deadline;
  const kept = { ...forgottenAfter(keptMs, now), ...(leftMs > 0 && { leftMs }) };
  const change = { claim: null, failures: 0, retryAt: 0, ...kept };
  const machine = keepsMemory(sandbox) ? undefined : 'disk';
  return transition(rest, 'paused', {
    ...change,
    ...(byHook ? machine && { machine } : { machine: 'frozen' }),
  });
}

/** Lets a sandbox run whose guest has been thawed. */
export function resume(sandbox: Sandbox): Sandbox {
  const { forgetAt: _, machine: _machine, isResumed: _resumed, endCause: _cause, ...rest } = sandbox;
  return transition(rest, 'running', { claim: null, observed: null });
}

/**
 * Schedules another attempt after a guest could not be thawed. At its deadline the sandbox expires again, because a guest
 * that could stay in this phase would never end.
 */
export function postpone(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  const retryAt = now + retryDelay(failures);
  if (sandbox.deadline > now) return { ...sandbox, claim: null, failures, retryAt };
  const change = { ...nextAttempt(sandbox), failures, retryAt };
  // A hook has resumed this machine, so a hook can pause it again, whatever its registration says.
  return transition(
    sandbox,
    'expiring',
    sandbox.isResumed ? { ...change, pausedFrom: sandbox.deadline } : change,
  );
}

/** Returns the time until the next attempt, in ms. It doubles with each failure in a row, up to a maximum. */
export function retryDelay(failures: number): number {
  return Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
}
