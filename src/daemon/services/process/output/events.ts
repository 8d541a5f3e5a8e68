import type { TerminalSize } from '../../../linux/processes/pty.ts';
import type { ProcessExit } from '../../../linux/processes/spawn.ts';
import { SIGKILL, signalName, signalText } from '../../../linux/system/signals.ts';
import type { TreeUsage } from '../cgroups/leaf.ts';

export type OutputStream = 'stdout' | 'stderr' | 'pty';

/** Counts the bytes of each stream since the start of the process. */
export type Offsets = Readonly<Record<OutputStream, number>>;

/** Bytes as the process wrote them. */
export interface OutputEvent {
  readonly type: 'output';
  readonly stream: OutputStream;
  readonly bytes: Buffer;
  /** The offset of the first byte in its stream. */
  readonly offset: number;
}

export interface StartEvent {
  readonly type: 'start';
  readonly pid: number;
  /** The following output begins at these offsets. They are null when the reader does not resume. */
  readonly offsets: Offsets | null;
  /** The size of the terminal that the reader joins, if that is known. */
  readonly size?: TerminalSize | null;
}

/** Says that output which a resuming reader asked for is no longer kept. */
export interface GapEvent {
  readonly type: 'gap';
  readonly from: Offsets;
  readonly to: Offsets;
}

export type EndReason = 'exited' | 'signaled' | 'deadline' | 'out of memory' | 'unknown';

/** Counts what has happened since the daemon started. */
export interface ProcessCounts {
  started: number;
  readonly ended: Record<EndReason, number>;
  /** Counts bytes, by stream. */
  readonly output: Record<OutputStream, number>;
}

/**
 * The CPU time of the process and of its children that it has waited for, or, after a crash of the daemon, of the
 * whole tree. The peak memory is that of the whole tree.
 */
export interface ResourceUsage {
  readonly userMicros: number;
  readonly systemMicros: number;
  /** Null when the kernel does not report it. */
  readonly peakMemoryBytes: number | null;
  /** How often the limits of the process have refused a process or thread. It is absent without limits. */
  readonly refusedTasks?: number;
}

/** Describes how a process ended. `status` and `error` have Go's wording, which clients match. */
export interface EndEvent {
  readonly type: 'end';
  /** -1 when a signal ended it. */
  readonly exitCode: number;
  /** False when a signal ended it. */
  readonly exited: boolean;
  /** It reads like `exit status 0` or `signal: killed`. */
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
 * Returns the end event. `expired` says that the deadline killed the process. `tree` holds the usage of the process and
 * all below it. Its CPU time, if known, replaces that of `exit`.
 */
export function endEvent(exit: ProcessExit, expired: boolean, tree: TreeUsage | null): EndEvent {
  const { code, signal } = exit;
  const { userMicros, systemMicros } = tree?.cpu ?? exit;
  const status = signal === null ? `exit status ${code ?? 'unknown'}` : `signal: ${signalText(signal)}`;
  const peakMemoryBytes = tree?.peakMemoryBytes ?? null;
  const refusedTasks = tree?.refusedTasks ?? null;
  const killedForMemory = signal === SIGKILL && tree?.outOfMemory === true;
  return {
    type: 'end',
    exitCode: code ?? -1,
    exited: code !== null,
    status,
    error: code === 0 ? null : status,
    reason: expired ? 'deadline' : killedForMemory ? 'out of memory' : reasonOf(exit),
    signal: signal === null ? null : signalName(signal),
    usage: { userMicros, systemMicros, peakMemoryBytes, ...(refusedTasks !== null && { refusedTasks }) },
  };
}

/** Returns `unknown` if a daemon that has crashed was the parent, and the kernel does not say how the process ended. */
function reasonOf({ code, signal }: ProcessExit): EndReason {
  if (signal !== null) return 'signaled';
  return code === null ? 'unknown' : 'exited';
}
