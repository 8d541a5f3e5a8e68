import { native } from '../system/native.ts';

export const SECOND_NS = 1_000_000_000n;

/**
 * Sets the times of an open file, in nanoseconds since the epoch, which may have more than 64 bits; see `native.writeTimes`.
 */
export function writeTimes(descriptor: number, accessed: bigint, modified: bigint): Promise<void> {
  return native.writeTimes(descriptor, ...splitTime(accessed), ...splitTime(modified));
}

/** Returns the seconds and the nanoseconds of a time. The latter count forwards, also before 1970. */
export function splitTime(time: bigint): [seconds: number, nanoseconds: number] {
  const nanoseconds = ((time % SECOND_NS) + SECOND_NS) % SECOND_NS;
  return [Number((time - nanoseconds) / SECOND_NS), Number(nanoseconds)];
}
