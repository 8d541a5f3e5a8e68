import { Allowance } from '../../../../base/allowance.ts';
import { KeyedQueues } from '../../../../base/exclusion.ts';
import type { Transfers } from '../../../../base/tally.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import type { User } from '../../../linux/system/users.ts';
import type { WriteGate } from '../../pause/write-gate.ts';
import type { FileChange } from '../entries/file-change.ts';
import type { FileMetadata } from '../entries/metadata.ts';

/** Maximum number of overwrites waiting for the same file. */
const MAX_OVERWRITES = 1024;
/** Files of all uploads that have been received and not committed: each holds two descriptors. */
const MAX_ALL_UNCOMMITTED = 2048;

/** Queues, limits and counters that all uploads share. */
export class UploadResources {
  /** Overwrites in progress, by device and inode: contents are not mixed. */
  readonly overwrites = new KeyedQueues('overwrite the file', MAX_OVERWRITES);
  /** Bytes of small files that are kept in memory. */
  readonly small = new Allowance(8 * 1024 * 1024);
  /** Bytes kept in memory because the disk is full. */
  readonly memory = new Allowance(16 * 1024 * 1024);
  readonly uncommitted = new Allowance(MAX_ALL_UNCOMMITTED);
  readonly lanes: Lanes;
  /** Every step that changes files passes it. */
  readonly gate: WriteGate;
  readonly tally: Transfers;

  constructor(lanes: Lanes, gate: WriteGate, tally: Transfers) {
    this.lanes = lanes;
    this.gate = gate;
    this.tally = tally;
  }
}

/** What all files of an upload share. */
export interface FileContext {
  readonly user: User;
  /** Replaces the metadata of every file. */
  readonly metadata: FileMetadata;
  readonly change: FileChange;
  /** Whether to fsync(2) files and directories before returning. */
  readonly durable: boolean;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
  readonly shared: UploadResources;
}
