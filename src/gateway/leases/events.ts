import type { EndCause, Phase, Sandbox } from './sandbox.ts';

/** What happens to sandboxes, as far as a platform is told. */
export type EventKind = 'created' | 'paused' | 'resumed' | 'expired' | 'removed' | 'failed';

/** A sandbox is created or resumed by a `request` or a `registration`, and ends for one of the others. */
type Reason = EndCause | 'timeout' | 'registration' | Step;

/** A step of the lifecycle that can fail. */
type Step = 'freeze' | 'hook' | 'thaw' | 'resume' | 'kill' | 'create';

/** One thing that has happened to a sandbox. It has no metadata, because those may be large. */
export interface SandboxEvent {
  readonly event: EventKind;
  readonly reason: Reason;
  readonly sandboxID: string;
  readonly owner: string | null;
  readonly templateID?: string;
  readonly host?: string;
  /** How a machine has ended by itself. */
  readonly detail?: string;
}

/** The step that has failed in each phase. */
const STEPS: Partial<Record<Phase, Step>> = {
  expiring: 'freeze',
  committed: 'hook',
  thawing: 'thaw',
  resuming: 'resume',
  removing: 'kill',
};

/** Returns what a change of a record means. A record is null if there is none. `now` is in Unix ms. */
export function eventsOf(
  before: Sandbox | null,
  after: Sandbox | null,
  now: number,
): readonly SandboxEvent[] {
  const sandbox = after ?? before;
  if (!sandbox) return [];
  const { id: sandboxID, owner, templateID, host, endDetail } = sandbox;
  const described = {
    ...{ sandboxID, owner: owner ?? null },
    ...(templateID !== undefined && { templateID }),
    ...(host !== undefined && { host }),
  };
  return changesOf(before, after, now).map(([event, reason]) => ({
    ...{ event, reason, ...described },
    ...(reason === 'ended' && endDetail !== undefined && { detail: endDetail }),
  }));
}

type Change = readonly [event: EventKind, reason: Reason];

function changesOf(before: Sandbox | null, after: Sandbox | null, now: number): readonly Change[] {
  if (!before) return after?.phase === 'running' ? [['created', 'registration']] : [];
  if (!after) return [before.phase === 'creating' ? ['failed', 'create'] : ['removed', endOf(before, now)]];
  if (after.incarnation !== before.incarnation)
    return [[before.phase === 'paused' ? 'resumed' : 'created', 'registration']];
  const step = STEPS[before.phase];
  if (step && after.failures > before.failures) return [['failed', step]];
  return after.phase === before.phase ? [] : stepOf(before, after);
}

function stepOf(before: Sandbox, { phase, pausedFrom, endCause }: Sandbox): readonly Change[] {
  if (phase === 'running' && before.phase === 'creating') return [['created', 'request']];
  if (phase === 'running' && before.isResumed) return [['resumed', 'request']];
  // One that is paused on request has not expired.
  if (phase === 'committed' && pausedFrom === undefined) return [['expired', endCause ?? 'timeout']];
  if (phase === 'paused' && before.phase === 'committed') return [['paused', before.endCause ?? 'timeout']];
  if (phase === 'removing' && endCause === 'ended') return [['failed', 'ended']];
  if (phase === 'removing' && before.phase === 'creating' && !before.isDoomed) return [['failed', 'create']];
  return [];
}

/** Returns why the record of a sandbox goes. */
function endOf({ phase, endCause, forgetAt = Number.POSITIVE_INFINITY }: Sandbox, now: number): Reason {
  if (phase === 'paused') return forgetAt <= now ? 'forgotten' : 'request';
  return endCause ?? (phase === 'committed' || phase === 'removing' ? 'timeout' : 'request');
}
