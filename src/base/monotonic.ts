import process from 'node:process';

/**
 * Milliseconds, with fractions, of a clock that nobody sets. It is `performance.now` from another start: that loads the whole of
 * `node:perf_hooks` when it is first called, a twentieth of what a start costs.
 */
export function monotonicMs(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}
