import { SECOND_NS } from '../../../linux/files/times.ts';

/** The JSON of a Timestamp and the dates of HTTP hold only the years 1 to 9999. Source: google/protobuf/timestamp.proto. */
const FIRST_NS = -62_135_596_800n * SECOND_NS;
const LAST_NS = 253_402_300_800n * SECOND_NS - 1n;

/**
 * Returns the time, or the nearest one that clients can be told. File systems such as tmpfs keep any 64-bit number of
 * seconds, and one file with such a time must not break the answers about its whole directory.
 */
export function tellableTime(ns: bigint): bigint {
  return ns < FIRST_NS ? FIRST_NS : ns > LAST_NS ? LAST_NS : ns;
}
