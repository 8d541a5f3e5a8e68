import { SIGKILL, signalName, signalText } from '../../os/signals.ts';
import type { ProcessExit } from '../../os/spawn.ts';
import type { TreeUsage } from './leaf.ts';

export type OutputStream = 'stdout' | 'stderr' | 'pty';

/** Bytes of each stream since the start of the process. */
export type Offsets = Readonly<Record<OutputStream, number>>;

/** Bytes as the process wrote them. */
export interface OutputEvent {
  readonly type: 'output';
  readonly stream: OutputStream;
  readonly bytes: Buffer;
  /** Bytes of its stream before it. */
  readonly offset: number;
}

export interface StartEvent {
  readonly type: 'start';
  readonly pid: number;
  /** Where the output that follows begins, or null when nobody asked. */
  readonly offsets: Offsets | null;
}

/** Bytes that a reader asked for and that are not kept any more. */
export interface GapEvent {
  readonly type: 'gap';
  readonly from: Offsets;
  readonly to: Offsets;
}

export type EndReason = 'exited' | 'signaled' | 'deadline' | 'out of memory';

/** What a process has used: CPU time of itself and of the children that it waited for, memory of all below it. */
export interface ResourceUsage {
  readonly userMicros: number;
  readonly systemMicros: number;
  /** Null where the kernel does not tell. */
  readonly peakMemoryBytes: number | null;
}

/** How a process ended, in the words that Go prints (clients match them). */
export interface EndEvent {
  readonly type: 'end';
  /** -1 when a signal ended it. */
  readonly exitCode: number;
  /** Whether it ended by itself. */
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

/** `expired`: the deadline killed it. `tree`: what the kernel tells of it and all below, or null. */
export function endEvent(exit: ProcessExit, expired: boolean, tree: TreeUsage | null): EndEvent {
  const { code, signal, userMicros, systemMicros } = exit;
  const status = signal === null ? `exit status ${code}` : `signal: ${signalText(signal)}`;
  const killedForMemory = signal === SIGKILL && tree?.outOfMemory === true;
  return {
    type: 'end',
    exitCode: code ?? -1,
    exited: signal === null,
    status,
    error: code === 0 ? null : status,
    reason: expired
      ? 'deadline'
      : killedForMemory
        ? 'out of memory'
        : signal === null
          ? 'exited'
          : 'signaled',
    signal: signal === null ? null : signalName(signal),
    usage: { userMicros, systemMicros, peakMemoryBytes: tree?.peakMemoryBytes ?? null },
  };
}
