import { native } from './native.ts';

const SECOND = 1_000_000_000n;

/** The guest's wall clock, CLOCK_REALTIME, in nanoseconds since the epoch. */
export const wallClock = {
  /** Exact to the millisecond. */
  nowNs(): bigint {
    return BigInt(Date.now()) * 1_000_000n;
  },

  /** Throws EPERM where the daemon may not set the clock, EINVAL for a time before the epoch. */
  setNs(timeNs: bigint): void {
    native.setRealtimeClock(timeNs / SECOND, Number(timeNs % SECOND));
  },
};
