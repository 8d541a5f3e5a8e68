import { Durations } from '../../base/tally.ts';

/** Counts expiries by outcome, and failed steps by step. */
export class ExpiryTally {
  readonly outcomes = { paused: 0, removed: 0, frozen: 0, averted: 0 };
  /** Successful calls of the other hooks. */
  readonly others = { resumed: 0, killed: 0, created: 0 };
  readonly failures = { freeze: 0, collapse: 0, hook: 0, thaw: 0, resume: 0, kill: 0, create: 0 };
  readonly hooks = new Durations();
}
