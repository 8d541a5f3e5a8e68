import type { PipePoller } from '../../os/pipe-ends.ts';
import type { ProcessExit } from '../../os/spawn.ts';
import { type Channels, takeOverChannels } from './channels.ts';
import type { Leaf, LeavesState } from './leaf.ts';
import { Output } from './output.ts';
import { ManagedProcess, type ProcessState } from './process.ts';
import type { OutputPath } from './start.ts';

/** All processes, as they are handed over to a later program. */
export interface ProcessesState {
  readonly processes: readonly (ProcessState & { readonly startId: string | null })[];
  readonly leaves: LeavesState;
  /** Read ends of pipes whose processes have ended and whose background children may write to. */
  readonly drains: readonly number[];
  /** Descriptor of the kept output, or null. */
  readonly memory: number | null;
}

/** The state with other numbers of its descriptors. */
export function renumbered(state: ProcessesState, renumber: (descriptor: number) => number): ProcessesState {
  const optional = (descriptor: number | null) => (descriptor === null ? null : renumber(descriptor));
  const processes = state.processes.map((process) => {
    const { stdin, stdout, stderr, master, slave } = process.ends;
    const pipes = { stdin: optional(stdin), stdout: optional(stdout), stderr: optional(stderr) };
    return { ...process, ends: { ...pipes, master: optional(master), slave: optional(slave) } };
  });
  return { ...state, processes, drains: state.drains.map(renumber), memory: optional(state.memory) };
}

/** A process that an earlier program has started. `exit`: settles when it has been reaped. */
export function takeOverProcess(
  state: ProcessState,
  exit: Promise<ProcessExit>,
  leaf: Leaf | null,
  { poller, history, unread, written }: OutputPath,
): ManagedProcess {
  let opened: Channels | null = null;
  const output = new Output((paused) => opened?.setPaused(paused), history, unread);
  output.continueFrom(state.totals);
  opened = takeOverChannels(state.kind, state.ends, poller, (stream, bytes) => {
    written[stream] += bytes.length;
    output.write(stream, bytes);
  });
  const { config, tag, pid } = state;
  const process = new ManagedProcess({
    ...{ config, tag, output, leaf, channels: opened },
    ...{ spawned: { pid, exit }, past: state },
  });
  return process;
}

/** Reads and discards what is written to these pipes, until their last holder closes them. */
export function drainPipes(poller: PipePoller, descriptors: readonly number[]): void {
  for (const descriptor of descriptors) poller.read(descriptor, () => {}).unref();
}
