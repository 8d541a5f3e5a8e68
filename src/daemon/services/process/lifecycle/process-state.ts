import type { ProcessExit, Spawned } from '../../../linux/processes/spawn.ts';
import type { Leaf } from '../cgroups/leaf.ts';
import type { ChannelEnds, Channels } from '../output/channels.ts';
import type { EndEvent, Offsets } from '../output/events.ts';
import type { Output } from '../output/output.ts';
import type { KeptConfig } from './process-config.ts';

/** What a process is made of; `channels` already feeds `output`. */
export interface ProcessParts {
  readonly config: KeptConfig;
  readonly tag: string | null;
  readonly spawned: Spawned;
  readonly channels: Channels;
  readonly output: Output;
  /** Its cgroup; null without cgroups. */
  readonly leaf: Leaf | null;
  /** Of a process that an earlier program has started. */
  readonly past?: ProcessPast;
}

/** What a process has been through in an earlier program. */
export interface ProcessPast {
  /** Accepted input that has not been written, or null. */
  readonly unwritten: Buffer | null;
  readonly isInputClosed: boolean;
  readonly isKilled: boolean;
  readonly isExpired: boolean;
  /** How it has exited; null: not yet. */
  readonly exit: ProcessExit | null;
  /** Its last event, and when that was appended, by `monotonicMs`. */
  readonly end: EndEvent | null;
  readonly endedAt: number;
}

/** A process as it is handed over to a later program. */
export interface ProcessState extends ProcessPast {
  readonly pid: number;
  readonly config: KeptConfig;
  readonly tag: string | null;
  readonly kind: Channels['kind'];
  readonly ends: ChannelEnds;
  /** Null once it has exited. */
  readonly pidfd: number | null;
  readonly isChild: boolean;
  /** The path of its cgroup, or null. */
  readonly leaf: string | null;
  readonly deadlineAt: number | null;
  readonly totals: Offsets;
  /** Its number in the kept output. */
  readonly number: number;
}

/** The state as JSON can represent it: the input in base64. */
export type EncodedState<State extends { readonly unwritten: Buffer | null }> = Omit<State, 'unwritten'> & {
  readonly unwritten: string;
};

export function encodeState<State extends { readonly unwritten: Buffer | null }>(
  state: State,
): EncodedState<State> {
  return { ...state, unwritten: state.unwritten?.toString('base64') ?? '' };
}

export function decodeState<State extends { readonly unwritten: string }>(
  state: State,
): Omit<State, 'unwritten'> & { readonly unwritten: Buffer } {
  return { ...state, unwritten: Buffer.from(state.unwritten, 'base64') };
}
