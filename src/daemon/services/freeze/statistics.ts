/** `legacy`: the daemon's own `user` and `ptys`; `hierarchy`: everything but what the daemon and a resume need. */
export type FreezeMode = 'legacy' | 'hierarchy';

export const FREEZE_MODES: readonly FreezeMode[] = ['legacy', 'hierarchy'];

/**
 * What a freeze has met and done, in the order of the wire.
 * visited = allowlisted + preFrozen + requested + failed; requested = frozen + notFrozen + unobservable.
 */
export interface FreezeStatistics {
  readonly mode: FreezeMode;
  /** Cgroups looked at; those below a cgroup that is frozen as a whole are not. */
  readonly visited: number;
  /** Left running: the daemon's own chain, and what a resume depends on. */
  readonly allowlisted: number;
  /** Whether there were more cgroups than the caller allowed to visit. */
  readonly truncated: boolean;
  /** Left alone: the guest had frozen them itself. */
  readonly preFrozen: number;
  /** Asked to freeze. */
  readonly requested: number;
  readonly frozen: number;
  /** Still not frozen when the wait was over. */
  readonly notFrozen: number;
  /** Refused by the kernel. */
  readonly failed: number;
  /** Gone, or unreadable, before they were seen frozen. */
  readonly unobservable: number;
  /** Whole milliseconds, as `waitMs`. */
  readonly sweepMs: number;
  readonly waitMs: number;
}
