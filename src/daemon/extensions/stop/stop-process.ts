import { setTimeout as delay } from 'node:timers/promises';
import { within } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { Cgroup } from '../../linux/cgroups/cgroup2.ts';
import { SIGTERM } from '../../linux/system/signals.ts';
import type { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import type { EndEvent } from '../../services/process/output/events.ts';

/** After this time it is first checked again whether the tree has ended, in milliseconds. Later intervals double. */
const FIRST_LOOK_MS = 5;
/** Intervals between two checks are not longer than this, in milliseconds. */
const LAST_LOOK_MS = 50;
/**
 * The tree must end within this time after SIGKILL, in milliseconds. A process in state D ends only when its device answers.
 */
const KILL_MS = 10_000;
/** An error names at most this many pids. */
const MOST_NAMED = 16;

export interface Stopped {
  readonly end: EndEvent;
  /** True if SIGKILL was needed. */
  readonly killed: boolean;
}

/**
 * Ends a process and everything below it with SIGTERM, and with SIGKILL after `graceMs`. Resolves when nothing of it is left.
 * Throws `failed_precondition` without a cgroup, because nothing else can show that, and `deadline_exceeded` when something
 * is left 10 s after SIGKILL.
 */
export async function stopProcess(process: ManagedProcess, graceMs: number): Promise<Stopped> {
  process.signalTree(SIGTERM);
  const { leaf } = process.state;
  // Without a leaf, `signalTree` has thrown.
  const cgroup = new Cgroup(leaf ?? '');
  // Root can move the process itself to another cgroup.
  const isOver = () => process.isExiting && !cgroup.populated();
  const killed = !(await hasEnded(isOver, graceMs, () => {}));
  const killBy = monotonicMs() + KILL_MS;
  // It is killed more than once, because a kill fails while no descriptor is free.
  if (killed && !(await hasEnded(isOver, KILL_MS, () => process.kill()))) throw survived(process.pid, cgroup);
  const ended = await within<{ end: EndEvent } | null>(
    Math.max(0, killBy - monotonicMs()),
    process.ended,
    () => null,
  );
  if (ended) return { end: ended.end, killed };
  const text = `process ${process.pid} and all below it have ended, but a client has not taken its output`;
  throw new EnvdError('deadline_exceeded', text);
}

/** Calls `act` and checks, again and again, until it is over. Returns false after `limitMs`. */
async function hasEnded(isOver: () => boolean, limitMs: number, act: () => void): Promise<boolean> {
  const last = monotonicMs() + limitMs;
  for (let interval = FIRST_LOOK_MS; ; interval = Math.min(interval * 2, LAST_LOOK_MS)) {
    act();
    if (isOver()) return true;
    const left = last - monotonicMs();
    if (left <= 0) return false;
    await delay(Math.min(interval, left));
  }
}

function survived(pid: number, cgroup: Cgroup): EnvdError {
  const pids = cgroup.processes();
  const named = pids.slice(0, MOST_NAMED).join(', ') || 'in cgroups below its own';
  const text = `process ${pid} was killed with all below it, but ${pids.length} are left after ${KILL_MS} ms: ${named}`;
  return new EnvdError('deadline_exceeded', text);
}
