import type { Sandbox } from './sandbox.ts';

/** The part of an idle timeout after which a use is recorded again, and the least time between two records, in ms. */
const RECORDED_PART = 4;
const LEAST_MS = 1000;

/** How often the use of a sandbox is recorded at most, in ms. */
export function recordedEveryMs(idleTimeout: number): number {
  return Math.max((idleTimeout * 1000) / RECORDED_PART, LEAST_MS);
}

/**
 * When a sandbox that is used now expires, as a part of its record; empty when only its deadline counts. It is later by the time during
 * which a use may not be recorded, so that no sandbox expires too early.
 */
export function usedAt({ idleTimeout }: Pick<Sandbox, 'idleTimeout'>, now: number): Pick<Sandbox, 'idleAt'> {
  if (idleTimeout === undefined) return {};
  return { idleAt: now + idleTimeout * 1000 + recordedEveryMs(idleTimeout) };
}

/** Records that a sandbox is used; returns the record unchanged when it does not run, or only its deadline counts. */
export function recordUse(sandbox: Sandbox, now: number): Sandbox {
  const counts = sandbox.phase === 'running' && sandbox.idleTimeout !== undefined;
  return counts ? { ...sandbox, ...usedAt(sandbox, now) } : sandbox;
}

/** With the idle timeout of the gateway, unless it has one. */
export function withIdleTimeout<T extends Pick<Sandbox, 'idleTimeout'>>(
  given: T,
  fallback: number | null,
): T {
  return given.idleTimeout === undefined && fallback !== null ? { ...given, idleTimeout: fallback } : given;
}
