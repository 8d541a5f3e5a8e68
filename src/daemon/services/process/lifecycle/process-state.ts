import type { ProcessExit } from '../../../linux/processes/spawn.ts';
import type { ChannelEnds, Channels } from '../output/channels.ts';
import type { EndEvent, Offsets } from '../output/events.ts';
import { type KeptConfig, keptOf } from './process-config.ts';

/** A process as the next daemon continues with it. */
export interface ProcessState {
  readonly pid: number;
  readonly config: KeptConfig;
  readonly tag: string | null;
  /** The idempotency key that it was started with, or null. */
  readonly startId: string | null;
  readonly kind: Channels['kind'];
  readonly ends: ChannelEnds;
  /** Null once it has exited. */
  readonly pidfd: number | null;
  readonly isChild: boolean;
  /** The path of its cgroup, or null. */
  readonly leaf: string | null;
  /** When its deadline kills it, by `monotonicMs`; null: never. */
  readonly deadlineAt: number | null;
  readonly totals: Offsets;
  /** Its number in the kept output. */
  readonly number: number;
  /** Accepted input that has not been written, or null. */
  readonly unwritten: Buffer | null;
  readonly isInputClosed: boolean;
  readonly isKilled: boolean;
  readonly isExpired: boolean;
  /** How it has exited; null: not yet. */
  readonly exit: ProcessExit | null;
  /** Its last event, and when that was appended, by `monotonicMs`; null and 0: not yet. */
  readonly end: EndEvent | null;
  readonly endedAt: number;
}

/** A state with the key of its record; undefined: it has none. */
export type RecordedState = ProcessState & { readonly record?: string | undefined };

/** The state as JSON can represent it: the input in base64. */
export type EncodedProcess = Omit<ProcessState, 'unwritten'> & { readonly unwritten: string };

/** What a program may read: earlier versions tell neither the pidfd nor whether it is their child. */
export type ReadProcess = Omit<EncodedProcess, 'pidfd' | 'isChild' | 'config'> &
  Partial<Pick<EncodedProcess, 'pidfd' | 'isChild'>> & {
    /** Earlier versions keep the whole command, and no digest. */
    readonly config: Omit<KeptConfig, 'digest'> & Partial<Pick<KeptConfig, 'digest'>>;
  };

export function encodeProcess(state: ProcessState): EncodedProcess {
  return { ...state, unwritten: state.unwritten?.toString('base64') ?? '' };
}

/** A state of this version or an earlier one, with the descriptors for which `own` has numbers of this program. */
export function decodeProcess(
  { config, ends, pidfd = null, isChild = true, unwritten, ...state }: ReadProcess,
  own: (descriptor: number) => number,
): ProcessState {
  const { digest } = config;
  return {
    ...state,
    config: digest === undefined ? keptOf(config, true) : { ...config, digest },
    ...withDescriptors({ ends, pidfd }, own),
    isChild,
    unwritten: Buffer.from(unwritten, 'base64'),
  };
}

/** The state with other numbers of its descriptors. */
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
