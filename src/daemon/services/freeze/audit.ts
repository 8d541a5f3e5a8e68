import type { Cgroup } from '../../os/cgroup2.ts';

/**
 * What has become of a freeze by the time it is undone, for the platform's eyes.
 * requested = stillFrozen + notFrozen + vanished.
 */
export interface FreezeAudit {
  /** Cgroups that were asked to freeze and have not been thawed since. */
  readonly requested: number;
  readonly stillFrozen: number;
  /** Thawed by somebody else, or never frozen because a process could not be stopped. */
  readonly notFrozen: number;
  /** Gone, or not to be read. */
  readonly vanished: number;
  /** Of those still frozen: not seen frozen yet when the freeze was answered. */
  readonly late: number;
}

/** `late`: paths of those that were not seen frozen by the end of their freeze. */
export function auditFrozen(cgroups: readonly Cgroup[], late: ReadonlySet<string>): FreezeAudit {
  const states = Map.groupBy(cgroups, stateOf);
  const frozen = states.get('frozen') ?? [];
  return {
    requested: cgroups.length,
    stillFrozen: frozen.length,
    notFrozen: states.get('running')?.length ?? 0,
    vanished: states.get('vanished')?.length ?? 0,
    late: frozen.filter(({ path }) => late.has(path)).length,
  };
}

function stateOf(cgroup: Cgroup): 'frozen' | 'running' | 'vanished' {
  try {
    return cgroup.isFrozen() ? 'frozen' : 'running';
  } catch {
    return 'vanished';
  }
}
