import { randomUUID } from 'node:crypto';
import { EnvdError } from '../../base/errors.ts';
import { attentionAt, type Observed, type Phase, type Registration, type Sandbox } from './sandbox.ts';

/**
 * Every way in which a record may change, as pure functions; the registry applies each of them whole or not at all.
 * `now` is Unix ms of the registry's clock.
 */

/** For how long a claim counts without being renewed, in ms. A gateway that dies is followed by another after that. */
export const LEASE_MS = 5000;
const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 300_000;

/** The moves of expiry; `running`, `paused` and a removed record are reached by clients and operators, too. */
const MOVES: Readonly<Record<Phase, readonly Phase[]>> = {
  running: ['expiring'],
  expiring: ['committed', 'thawing'],
  committed: ['paused', 'thawing'],
  thawing: ['running'],
  paused: [],
};

function move(sandbox: Sandbox, phase: Phase, change: Partial<Sandbox> = {}): Sandbox {
  if (!MOVES[sandbox.phase].includes(phase)) {
    throw new EnvdError('internal', `sandbox '${sandbox.id}' cannot go from ${sandbox.phase} to ${phase}`);
  }
  return { ...sandbox, ...change, phase };
}

/** A sandbox that runs from now on, for `seconds`; it takes the place of one that runs or is paused. */
export function register(
  before: Sandbox | null,
  registration: Registration,
  seconds: number,
  now: number,
): Sandbox {
  if (before && before.phase !== 'running' && before.phase !== 'paused') {
    throw new EnvdError('already_exists', `sandbox '${before.id}' is about to expire`);
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

/** The time is up in `seconds`, whatever it was before. Throws `not_found` when it is too late for that. */
export function setTimeLeft(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  return { ...whileItCounts(sandbox), deadline: now + seconds * 1000, failures: 0, retryAt: 0 };
}

/** The time is not up before `seconds` have passed. Throws `not_found` when it is too late for that. */
export function extend(sandbox: Sandbox, seconds: number, now: number): Sandbox {
  const deadline = now + seconds * 1000;
  return deadline <= whileItCounts(sandbox).deadline ? sandbox : setTimeLeft(sandbox, seconds, now);
}

/** The point of no return is `committed`: until then a longer time to live wins, from then on it is refused. */
function whileItCounts(sandbox: Sandbox): Sandbox {
  if (sandbox.phase !== 'committed' && sandbox.phase !== 'paused') return sandbox;
  throw new EnvdError('not_found', `sandbox '${sandbox.id}' ${describeEnd(sandbox)}`);
}

function describeEnd({ phase }: Sandbox): string {
  return phase === 'paused' ? 'is paused' : 'has expired';
}

/** Claims what nobody works on: the time is up, or who worked on it has gone. The same record when there is no need. */
export function takeUp(sandbox: Sandbox, owner: string, now: number): Sandbox {
  if (attentionAt(sandbox) > now) return sandbox;
  const claim = { owner, until: now + LEASE_MS };
  if (sandbox.phase !== 'running') return { ...sandbox, claim };
  return move(sandbox, 'expiring', { claim, expiries: sandbox.expiries + 1, observed: null });
}

export function renew(sandbox: Sandbox, owner: string, now: number): Sandbox {
  return { ...sandbox, claim: { owner, until: now + LEASE_MS } };
}

/** The guest stands still: past the point of no return, unless the sandbox was given more time meanwhile. */
export function commit(sandbox: Sandbox, observed: Observed, now: number): Sandbox {
  return sandbox.deadline > now ? move(sandbox, 'thawing') : move(sandbox, 'committed', { observed });
}

/** The expiry has failed; after the thaw it is tried again, later each time. */
export function fail(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  return move(sandbox, 'thawing', { failures, retryAt: now + retryDelay(failures) });
}

/** The hook has succeeded. Null: there is no record any more. */
export function settle(sandbox: Sandbox): Sandbox | null {
  return sandbox.onExpiry === 'remove' ? null : move(sandbox, 'paused', { claim: null, failures: 0 });
}

/** The guest runs again. */
export function resume(sandbox: Sandbox): Sandbox {
  return move(sandbox, 'running', { claim: null, observed: null });
}

/** The guest cannot be thawed now: somebody tries again, later each time. */
export function postpone(sandbox: Sandbox, now: number): Sandbox {
  const failures = sandbox.failures + 1;
  return { ...sandbox, claim: null, failures, retryAt: now + retryDelay(failures) };
}

/** 1 s, 2 s, 4 s and so on, 5 min at most. @internal */
export function retryDelay(failures: number): number {
  return Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
}
