import type { ProcessExit } from '../../../linux/processes/spawn.ts';
import { SIGKILL, signalName, signalText } from '../../../linux/system/signals.ts';
import type { TreeUsage } from '../cgroups/leaf.ts';

export type OutputStream = 'stdout' | 'stderr' | 'pty';

/** Bytes of each stream since the start of the process. */
export type Offsets = Readonly<Record<OutputStream, number>>;

/** Bytes as the process wrote them. */
export interface OutputEvent {
  readonly type: 'output';
  readonly stream: OutputStream;
  readonly bytes: Buffer;
  /** Offset of the first byte in its stream. */
  readonly offset: number;
}

export interface StartEvent {
  readonly type: 'start';
  readonly pid: number;
  /** Offsets at which the following output begins; null when the reader does not resume. */
  readonly offsets: Offsets | null;
}

/** Output that a resuming reader asked for and that is no longer kept. */
export interface GapEvent {
  readonly type: 'gap';
  readonly from: Offsets;
  readonly to: Offsets;
}

export type EndReason = 'exited' | 'signaled' | 'deadline' | 'out of memory' | 'unknown';

/** Counters since the start of the daemon. */
export interface ProcessCounts {
  started: number;
  readonly ended: Record<EndReason, number>;
  /** In bytes, by stream. */
  readonly output: Record<OutputStream, number>;
}

/**
 * CPU time of the process and of its children that it has waited for, or, after a crash of the daemon, of the whole
 * tree; peak memory of the whole tree.
 */
export interface ResourceUsage {
  readonly userMicros: number;
  readonly systemMicros: number;
  /** Null when the kernel does not report it. */
  readonly peakMemoryBytes: number | null;
}

/** How a process ended. `status` and `error` have Go's wording, which clients match. */
export interface EndEvent {
  readonly type: 'end';
  /** -1 when a signal ended it. */
  readonly exitCode: number;
  /** False when a signal ended it. */
  readonly exited: boolean;
  /** `exit status 0`, `signal: killed`. */
  readonly status: string;
  /** The status, or null after exit status 0. */
  readonly error: string | null;
  readonly reason: EndReason;
  /** The name of the signal that ended it, or null. */
  readonly signal: string | null;
  readonly usage: ResourceUsage;
}

export type ProcessEvent = StartEvent | GapEvent | OutputEvent | EndEvent;

/**
 * `expired`: the deadline killed it. `tree`: usage of the process and all below it, or null; its CPU time counts, if it
 * is told.
 */
export function endEvent(exit: ProcessExit, expired: boolean, tree: TreeUsage | null): EndEvent {
  const { code, signal } = exit;
  const { userMicros, systemMicros } = tree?.cpu ?? exit;
  const status = signal === null ? `exit status ${code ?? 'unknown'}` : `signal: ${signalText(signal)}`;
  const killedForMemory = signal === SIGKILL && tree?.outOfMemory === true;
  return {
    type: 'end',
    exitCode: code ?? -1,
    exited: code !== null,
    status,
    error: code === 0 ? null : status,
    reason: expired ? 'deadline' : killedForMemory ? 'out of memory' : reasonOf(exit),
    signal: signal === null ? null : signalName(signal),
    usage: { userMicros, systemMicros, peakMemoryBytes: tree?.peakMemoryBytes ?? null },
  };
}

/** `unknown`: the process was the child of a daemon that has crashed, and the kernel does not tell how it ended. */
function reasonOf({ code, signal }: ProcessExit): EndReason {
  if (signal !== null) return 'signaled';
  return code === null ? 'unknown' : 'exited';
}
