import { setTimeout as sleep } from 'node:timers/promises';
import { EnvdError } from '../../../base/errors.ts';
import type { Cgroup } from '../../os/cgroup2.ts';

export interface Observation {
  readonly frozen: number;
  /** Still not frozen when the wait was over. */
  readonly pending: readonly Cgroup[];
  readonly unobservable: number;
}

/** Polling beats waiting for cgroup.events with epoll: a hundred processes stop within 10 ms. */
const INTERVAL_MS = 1;

/**
 * Reads the cgroups back, at once and then every millisecond, until all are frozen or `maxWaitMs` have passed.
 * Throws `aborted` when `signal` ends the wait; that undoes nothing.
 */
export async function observe(
  cgroups: readonly Cgroup[],
  maxWaitMs: number,
  signal: AbortSignal,
): Promise<Observation> {
  const deadline = performance.now() + maxWaitMs;
  let pending = cgroups;
  let frozen = 0;
  for (;;) {
    const states = Map.groupBy(pending, readBack);
    frozen += states.get('frozen')?.length ?? 0;
    pending = states.get('running') ?? [];
    if (pending.length === 0 || performance.now() >= deadline) break;
    await pause(signal);
  }
  return { frozen, pending, unobservable: cgroups.length - frozen - pending.length };
}

function readBack(cgroup: Cgroup): 'frozen' | 'running' | 'unobservable' {
  try {
    return cgroup.isFrozen() ? 'frozen' : 'running';
  } catch {
    return 'unobservable';
  }
}

async function pause(signal: AbortSignal): Promise<void> {
  try {
    await sleep(INTERVAL_MS, undefined, { signal });
  } catch (error) {
    throw new EnvdError('aborted', 'freeze was not waited for to the end', { cause: error });
  }
}
