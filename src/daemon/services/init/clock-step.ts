import type { InitStep } from './init.ts';

/** The guest's wall clock. */
export interface Clock {
  /** Since the epoch. */
  nowNs(): bigint;
  setNs(timeNs: bigint): void;
}

const BEHIND_NS = 50_000_000n;
const AHEAD_NS = 5_000_000_000n;

/**
 * Sets a clock that a pause has left behind. One that is ahead is left alone for longer: the request itself was
 * under way for some time, and setting a clock back harms programs.
 */
export function clockStep(clock: Clock): InitStep {
  return {
    name: 'clock',
    runs: 'unless stale',
    run({ request: { timestampNs }, ageNs }) {
      if (timestampNs === null) return;
      const target = timestampNs + ageNs();
      const behind = target - clock.nowNs();
      if (behind > BEHIND_NS || behind < -AHEAD_NS) clock.setNs(target);
    },
  };
}
