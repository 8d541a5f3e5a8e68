import type { Spawned } from '../../../linux/processes/spawn.ts';
import type { Leaf } from '../cgroups/leaf.ts';
import type { Channels } from '../output/channels.ts';
import type { Output } from '../output/output.ts';
import type { KeptConfig } from './process-config.ts';
import type { ProcessState } from './process-state.ts';
import type { ProcessRecord } from './records.ts';

/** Holds what a process is made of. `channels` already feeds `output`. */
export interface ProcessParts {
  readonly config: KeptConfig;
  readonly tag: string | null;
  readonly startId: string | null;
  /** The deadline kills it at this time, by `monotonicMs`. Null means never. */
  readonly deadlineAt: number | null;
  readonly spawned: Spawned;
  readonly channels: Channels;
  readonly output: Output;
  /** This is its cgroup, or null without cgroups. */
  readonly leaf: Leaf | null;
  /** A program that comes after a crash finds the process by this record. */
  readonly record: ProcessRecord;
  /** This is its past in an earlier program, or null if this program has started it. */
  readonly past: ProcessPast | null;
}

type ProcessPast = Pick<ProcessState, 'unwritten' | 'isInputClosed' | 'isKilled' | 'isExpired' | 'exit'>;
