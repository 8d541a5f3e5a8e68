import process from 'node:process';

/**
 * Returns milliseconds, with fractions, of CLOCK_MONOTONIC, which nobody sets and which is the same in all programs.
 * `performance.now()` counts from the start of each program.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}
