import type { Spawned } from '../../../linux/processes/spawn.ts';
import type { Leaf } from '../cgroups/leaf.ts';
import type { Channels } from '../output/channels.ts';
import type { Output } from '../output/output.ts';
import type { KeptConfig } from './process-config.ts';
import type { ProcessState } from './process-state.ts';
import type { ProcessRecord } from './records.ts';

/** What a process is made of; `channels` already feeds `output`. */
export interface ProcessParts {
  readonly config: KeptConfig;
  readonly tag: string | null;
  readonly startId: string | null;
  /** When its deadline kills it, by `monotonicMs`; null: never. */
  readonly deadlineAt: number | null;
  readonly spawned: Spawned;
  readonly channels: Channels;
  readonly output: Output;
  /** Its cgroup; null without cgroups. */
  readonly leaf: Leaf | null;
  /** What a program that comes after a crash finds of it. */
  readonly record: ProcessRecord;
  /** What it has been through in an earlier program; null: this one has started it. */
  readonly past: ProcessPast | null;
}

type ProcessPast = Pick<ProcessState, 'unwritten' | 'isInputClosed' | 'isKilled' | 'isExpired' | 'exit'>;
