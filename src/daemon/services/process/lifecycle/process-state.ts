import type { TerminalSize } from '../../../linux/processes/pty.ts';
import type { ProcessExit } from '../../../linux/processes/spawn.ts';
import type { ChannelEnds, Channels } from '../output/channels.ts';
import type { EndEvent, Offsets } from '../output/events.ts';
import type { KeptConfig } from './process-config.ts';

/** Describes a process as the next daemon continues with it. */
export interface ProcessState {
  readonly pid: number;
  readonly config: KeptConfig;
  readonly tag: string | null;
  /** It was started with this idempotency key, or with none if it is null. */
  readonly startId: string | null;
  readonly kind: Channels['kind'];
  readonly ends: ChannelEnds;
  /** Null once the process has exited. */
  readonly pidfd: number | null;
  readonly isChild: boolean;
  /** The path of its cgroup, or null. */
  readonly leaf: string | null;
  /** The deadline kills it at this time, by `monotonicMs`. Null means never. */
  readonly deadlineAt: number | null;
  readonly totals: Offsets;
  /** The kept output has the process under this number. */
  readonly number: number;
  /** Accepted input that has not been written, or null. */
  readonly unwritten: Buffer | null;
  readonly isInputClosed: boolean;
  readonly isKilled: boolean;
  readonly isExpired: boolean;
  readonly exit: ProcessExit | null;
  /** The last event, which was appended at `endedAt`, by `monotonicMs`. Before that they are null and 0. */
  readonly end: EndEvent | null;
  readonly endedAt: number;
  /** The size of the terminal, and the sequences that set its modes. Earlier versions did not tell them. */
  readonly size?: TerminalSize | null;
  readonly modes?: string;
}

/** A state with the key of its record. Undefined means that it has none. */
export type RecordedState = ProcessState & { readonly record?: string | undefined };

/** The state as JSON can represent it, with the input in base64. */
export type EncodedProcess = Omit<ProcessState, 'unwritten'> & { readonly unwritten: string };

export function encodeProcess(state: ProcessState): EncodedProcess {
  return { ...state, unwritten: state.unwritten?.toString('base64') ?? '' };
}

/** Decodes a state. `own` maps its descriptors to those of this program. */
export function decodeProcess(
  { unwritten, ...state }: EncodedProcess,
  own: (descriptor: number) => number,
): ProcessState {
  return { ...withDescriptors(state, own), unwritten: Buffer.from(unwritten, 'base64') };
}

/** Returns the state with other numbers for its descriptors. */
export function withDescriptors<State extends Pick<ProcessState, 'ends' | 'pidfd'>>(
  state: State,
  renumber: (descriptor: number) => number,
): State {
  const optional = (descriptor: number | null) => (descriptor === null ? null : renumber(descriptor));
  const { stdin, stdout, stderr, master, slave } = state.ends;
  const pipes = { stdin: optional(stdin), stdout: optional(stdout), stderr: optional(stderr) };
  const ends = { ...pipes, master: optional(master), slave: optional(slave) };
  return { ...state, ends, pidfd: optional(state.pidfd) };
}
