import type { EndEvent, OutputStream } from '../../services/process/output/events.ts';
import type { RingState } from './ring.ts';
import type { Terms } from './terms.ts';

/** Describes the kept output of a process for the next program. */
export interface LastingState {
  readonly pid: number;
  readonly tag: string | null;
  readonly terms: Terms;
  readonly rings: Readonly<Partial<Record<OutputStream, RingState>>>;
  readonly end: EndEvent | null;
  /** The process ended at this time, by `monotonicMs`, or 0. */
  readonly endedAt: number;
  readonly isComplete: boolean;
  readonly error: string | null;
}

/** Returns the state of a process that has not begun. */
export function newState(terms: Terms, isTerminal: boolean): LastingState {
  const ring = (index: number) => ({ base: index * terms.bytes, capacity: terms.bytes, from: 0, to: 0 });
  const rings = isTerminal ? { pty: ring(0) } : { stdout: ring(0), stderr: ring(1) };
  return { pid: 0, tag: null, terms, rings, end: null, endedAt: 0, isComplete: false, error: null };
}

/** Returns the bytes that the file can have, or that it has if nothing more is written. */
export function costOf({ terms, rings, isComplete }: LastingState): number {
  const sizes = Object.values(rings).map(({ to, capacity }) =>
    isComplete ? Math.min(to, capacity) : terms.bytes,
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
