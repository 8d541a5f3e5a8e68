/**
 * Returns a wall-clock time (Unix ms) that does not jump while the gateway runs, because a jump could expire every sandbox at
 * once.
 */
export function steadyNow(): number {
  return Math.floor(performance.timeOrigin + performance.now());
}
