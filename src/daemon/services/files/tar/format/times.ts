import type { Time } from './pax-reader.ts';

/** Nanoseconds since the epoch. */
export function timeOf({ seconds, nanoseconds }: Time): bigint {
  return BigInt(seconds) * 1_000_000_000n + BigInt(nanoseconds);
}
