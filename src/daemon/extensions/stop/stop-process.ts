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
/** Intervals between two checks of a single stop are not longer than this, in milliseconds. */
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

interface Stop {
  killAtMs: number;
  readonly stopped: Promise<Stopped>;
}

/**
 * The stops that are under way. There is one for each process, which all calls for it share, so that their number needs no
 * other limit than that of processes.
 */
export class Stops {
  readonly #stops = new Map<ManagedProcess, Stop>();

  /**
   * Ends a process and everything below it with SIGTERM, and with SIGKILL after `graceMs`, or earlier if another call says
   * so. Resolves when nothing of it is left. Throws `failed_precondition` without a cgroup, because nothing else can show
   * that, and `deadline_exceeded` when something is left 10 s after SIGKILL.
   */
  stop(process: ManagedProcess, graceMs: number): Promise<Stopped> {
    process.signalTree(SIGTERM);
    const killAtMs = monotonicMs() + graceMs;
    const known = this.#stops.get(process);
    if (known) {
      known.killAtMs = Math.min(known.killAtMs, killAtMs);
      return known.stopped;
    }
    const { promise: stopped, resolve } = Promise.withResolvers<Stopped>();
    const stop = { killAtMs, stopped };
    this.#stops.set(process, stop);
    resolve(this.#run(process, stop).finally(() => this.#stops.delete(process)));
    return stopped;
  }

  async #run(process: ManagedProcess, stop: Stop): Promise<Stopped> {
    const { leaf } = process.state;
    // Without a leaf, `signalTree` has thrown.
    const cgroup = new Cgroup(leaf ?? '');
    // Root can move the process itself to another cgroup.
    const isOver = () => process.isExiting && !cgroup.populated();
    const killed = !(await this.#hasEnded(isOver, stop, () => {}));
    const killBy = { killAtMs: monotonicMs() + KILL_MS };
    // It is killed more than once, because a kill fails while no descriptor is free.
    if (killed && !(await this.#hasEnded(isOver, killBy, () => process.kill())))
      throw survived(process.pid, cgroup);
    const ended = await within<{ end: EndEvent } | null>(
      Math.max(0, killBy.killAtMs - monotonicMs()),
      process.ended,
      () => null,
    );
    if (ended) return { end: ended.end, killed };
    const text = `process ${process.pid} and all below it have ended, but a client has not taken its output`;
    throw new EnvdError('deadline_exceeded', text);
  }

  /** Calls `act` and checks, again and again, until it is over. Returns false when the time to kill has come. */
  async #hasEnded(isOver: () => boolean, until: Pick<Stop, 'killAtMs'>, act: () => void): Promise<boolean> {
    for (let interval = FIRST_LOOK_MS; ; interval = Math.min(interval * 2, this.#lastLookMs)) {
      act();
      if (isOver()) return true;
      const left = until.killAtMs - monotonicMs();
      if (left <= 0) return false;
      await delay(Math.min(interval, left));
    }
  }

  /** The interval grows with the number of stops, so that the checks of all together take a limited share of the time. */
  get #lastLookMs(): number {
    return LAST_LOOK_MS + this.#stops.size;
  }
}

function survived(pid: number, cgroup: Cgroup): EnvdError {
  const pids = cgroup.processes();
  const named = pids.slice(0, MOST_NAMED).join(', ') || 'in cgroups below its own';
  const text = `process ${pid} was killed with all below it, but ${pids.length} are left after ${KILL_MS} ms: ${named}`;
  return new EnvdError('deadline_exceeded', text);
}
