import type { PipePoller } from '../../../linux/processes/pipe-ends.ts';
import type { InFlight } from '../../../linux/processes/read-buffer.ts';
import { ended, existing, type Spawned, UNKNOWN_EXIT } from '../../../linux/processes/spawn.ts';
import type { Leaf, LeavesState } from '../cgroups/leaf.ts';
import { ManagedProcess } from '../lifecycle/process.ts';
import { keptOf } from '../lifecycle/process-config.ts';
import type { ProcessState } from '../lifecycle/process-state.ts';
import type { OutputPath } from '../lifecycle/start.ts';
import { type Channels, takeOverChannels } from '../output/channels.ts';
import { Output } from '../output/output.ts';
import { STREAMS } from '../output/output-store.ts';

/** All processes, as they are handed over to a later program. */
export interface ProcessesState {
  readonly processes: readonly (ProcessState & {
    readonly startId: string | null;
    readonly record?: string | undefined;
  })[];
  readonly leaves: LeavesState;
  /** Read ends of pipes whose processes have ended and whose background children may write to. */
  readonly drains: readonly number[];
  /** Descriptor of the kept output, or null. */
  readonly memory: number | null;
}

/** The same while it is made: a process at a time, as together their input may be large. */
export type ProcessesSnapshot = Omit<ProcessesState, 'processes'> & {
  readonly processes: Iterable<ProcessesState['processes'][number]>;
};

/** The state with other numbers of its descriptors. */
export function renumbered(
  state: ProcessesSnapshot,
  renumber: (descriptor: number) => number,
): ProcessesSnapshot {
  const optional = (descriptor: number | null) => (descriptor === null ? null : renumber(descriptor));
  const processes = renumberedProcesses(state.processes, optional);
  return { ...state, processes, drains: state.drains.map(renumber), memory: optional(state.memory) };
}

function* renumberedProcesses(
  processes: ProcessesSnapshot['processes'],
  renumber: (descriptor: number | null) => number | null,
): Generator<ProcessesState['processes'][number]> {
  for (const process of processes) {
    const { stdin, stdout, stderr, master, slave } = process.ends;
    const pipes = { stdin: renumber(stdin), stdout: renumber(stdout), stderr: renumber(stderr) };
    const ends = { ...pipes, master: renumber(master), slave: renumber(slave) };
    // Earlier versions do not tell the pidfd.
    yield { ...process, ends, pidfd: renumber(process.pidfd ?? null) };
  }
}

/** A process that an earlier program has started. `inFlight`: what that had read of its output when it was killed. */
export function takeOverProcess(
  state: ProcessState,
  leaf: Leaf | null,
  { poller, history, unread, written }: OutputPath,
  inFlight: InFlight | null = null,
): ManagedProcess {
  let opened: Channels | null = null;
  const output = new Output((paused) => opened?.setPaused(paused), history, unread);
  output.continueFrom(state.totals);
  if (inFlight && !state.end) writeRest(output, inFlight);
  const source = { poller, process: history.process, totals: output.totals };
  opened = takeOverChannels(state.kind, state.ends, source, (stream, bytes) => {
    written[stream] += bytes.length;
    output.write(stream, bytes);
  });
  const { tag } = state;
  // Earlier versions keep the whole command, and no digest.
  const config = state.config.digest === undefined ? keptOf(state.config, true) : state.config;
  return new ManagedProcess({
    config,
    tag,
    output,
    leaf,
    channels: opened,
    spawned: spawnedBefore(state),
    past: state,
  });
}

/** Writes what of these bytes has not been written. */
function writeRest(output: Output, { stream: number, offset, bytes }: InFlight): void {
  const stream = STREAMS[number];
  const rest = stream && bytes.subarray(output.totals[stream] - offset);
  if (rest && rest.length > 0) output.write(stream, rest);
}

function spawnedBefore({ pid, pidfd, exit, isChild = true }: ProcessState): Spawned {
  if (exit) return ended(pid, exit, isChild);
  // Its pid may be that of any other process by now.
  if (!isChild && pidfd === null) return ended(pid, UNKNOWN_EXIT, false);
  return existing(pid, pidfd, isChild);
}

/** Reads and discards what is written to these pipes, until their last holder closes them. */
export function drainPipes(poller: PipePoller, descriptors: readonly number[]): void {
  for (const descriptor of descriptors) poller.read(descriptor, () => {}).unref();
}
