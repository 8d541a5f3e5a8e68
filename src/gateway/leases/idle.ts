import type { Sandbox } from './sandbox.ts';

/** A use is recorded again after the idle timeout divided by this number. */
const RECORDED_PART = 4;
/** Two records of use are at least this time apart, in ms. */
const LEAST_MS = 1000;

/** Returns the minimum time between two records of use, in ms. `idleTimeout` is in seconds. */
export function recordedEveryMs(idleTimeout: number): number {
  return Math.max((idleTimeout * 1000) / RECORDED_PART, LEAST_MS);
}

/**
 * Returns the part of a record that says when a sandbox expires that is used now (Unix ms). It is empty if only the deadline
 * counts. The time during which a use may go unrecorded is added, so that no sandbox expires too early.
 */
export function usedAt({ idleTimeout }: Pick<Sandbox, 'idleTimeout'>, now: number): Pick<Sandbox, 'idleAt'> {
  if (idleTimeout === undefined) return {};
  return { idleAt: now + idleTimeout * 1000 + recordedEveryMs(idleTimeout) };
}

/** Records that a sandbox is used. Returns the record unchanged if the sandbox does not run, or if only its deadline counts. */
export function recordUse(sandbox: Sandbox, now: number): Sandbox {
  const counts = sandbox.phase === 'running' && sandbox.idleTimeout !== undefined;
  return counts ? { ...sandbox, ...usedAt(sandbox, now) } : sandbox;
}

/** Returns `given` with the idle timeout of the gateway (in seconds, or null) if it has none of its own. */
export function withIdleTimeout<T extends Pick<Sandbox, 'idleTimeout'>>(
  given: T,
  fallback: number | null,
): T {
  return given.idleTimeout === undefined && fallback !== null ? { ...given, idleTimeout: fallback } : given;
}
