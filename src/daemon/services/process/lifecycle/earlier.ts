import { closeSync } from 'node:fs';
import type { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import type { LeftBytes } from '../../../linux/processes/read-buffer.ts';
import { followProcess, type Spawned, UNKNOWN_EXIT } from '../../../linux/processes/spawn.ts';
import type { Leaf, LeavesState } from '../cgroups/leaf.ts';
import { takeOverChannels } from '../output/channels.ts';
import type { Output } from '../output/output.ts';
import { recoverOutput } from '../output/output-recovery.ts';
import { STREAMS } from '../output/output-store.ts';
import { EndedProcess } from './ended.ts';
import { ManagedProcess } from './process.ts';
import type { ProcessState, RecordedState } from './process-state.ts';
import type { BegunStart, ProcessRecord } from './records.ts';

/** Describes a process of an earlier daemon. */
export type EarlierProcess = RecordedState & {
  /** The key of its kept output. */
  readonly output: string;
};

/**
 * Describes what an earlier daemon has left. It comes from its state in an upgrade, and from its records after a crash.
 * The descriptors are this program's.
 */
export interface EarlierProcesses {
  readonly processes: readonly EarlierProcess[];
  /** The descriptors of kept output, by key. */
  readonly outputs: ReadonlyMap<string, number>;
  /** This was read from a pipe when the daemon was killed. `output` is the key of the kept output that lacks it. */
  readonly inFlight: { readonly output: string; readonly read: LeftBytes } | null;
  /** Read ends of pipes whose processes have ended, and to which background children may still write. */
  readonly drains: readonly number[];
  /** Null after a crash. */
  readonly leaves: LeavesState | null;
  /** The starts that were under way. */
  readonly starting: readonly BegunStart[];
}

/** All processes as they are handed over, one at a time, because together their input may be large. */
export interface ProcessesSnapshot {
  readonly processes: Iterable<RecordedState>;
  readonly drains: readonly number[];
  /** The descriptor of the kept output, or null if that cannot be handed over. */
  readonly memory: number | null;
  readonly leaves: LeavesState;
  /** Starts of an earlier daemon that was killed, whose ids are refused for a while. */
  readonly starting: readonly BegunStart[];
}

/** Restores the output of each process, running ones first, others in the order of their ends. Closes the kept output. */
export function* outputsOf(
  { processes, outputs, inFlight }: EarlierProcesses,
  newOutput: () => Output,
): Generator<{ state: EarlierProcess; output: Output }> {
  const kept = new Map([...outputs].map(([key, memory]) => [key, recoverOutput(memory)]));
  for (const state of processes.toSorted((a, b) => a.endedAt - b.endedAt)) {
    const output = newOutput();
    const found = kept.get(state.output)?.get(state.number);
    // After a crash the totals are those of the kept output.
    output.continueFrom(found ?? { from: state.totals, records: () => [] }, state.modes);
    const isRead = inFlight?.output === state.output && inFlight.read.process === state.number;
    if (isRead && !state.end) writeRest(output, inFlight.read);
    yield { state, output };
  }
  for (const memory of outputs.values()) closeSync(memory);
}

/** Continues with a process that an earlier program has started. */
export function takeOverProcess(
  state: EarlierProcess,
  output: Output,
  poller: PipePoller,
  record: ProcessRecord,
  leaf: Leaf | null,
): ManagedProcess | EndedProcess {
  const { end } = state;
  const receiver = { poller, output, cgroup: state.leaf };
  const channels = takeOverChannels(state.ends, receiver, state.size ?? null);
  if (end === null)
    return new ManagedProcess({
      ...state,
      ...{ output, channels, leaf, record },
      spawned: spawnedBefore(state),
      past: state,
    });
  output.end(end);
  channels.discard();
  const { record: _, output: __, ...last } = state;
  return new EndedProcess({ ...last, end }, output, record, channels);
}

/** Writes those of these bytes that have not been written. */
function writeRest(output: Output, { stream: number, offset, bytes }: LeftBytes): void {
  const stream = STREAMS[number];
  const rest = stream && bytes.subarray(output.totals[stream] - offset);
  if (rest && rest.length > 0) output.write(stream, rest);
}

function spawnedBefore({ pid, pidfd, exit, isChild }: ProcessState): Spawned {
  // Without its pidfd, the pid of a process that is not our child may be that of any other process by now.
  const known = exit ?? (isChild || pidfd !== null ? null : UNKNOWN_EXIT);
  if (known === null) return followProcess(pid, pidfd, isChild);
  return { pid, pidfd: null, isChild: exit !== null && isChild, isOver: false, exit: Promise.resolve(known) };
}
