import { KeyedQueue } from '../../../../base/exclusion.ts';
import { Semaphore } from '../../../../base/semaphore.ts';
import type { Transfers } from '../../../../base/tally.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import type { User } from '../../../linux/system/users.ts';
import type { WriteGate } from '../../pause/write-gate.ts';
import type { FileChange } from '../entries/file-change.ts';
import type { FileMetadata } from '../entries/metadata.ts';

/** At most this many overwrites wait for the same file. */
const MAX_OVERWRITES = 1024;
/** All uploads together have at most this many uncommitted files, because each holds two descriptors. */
const MAX_ALL_UNCOMMITTED = 2048;

/** The queues, limits and counters that all uploads share. */
export class UploadResources {
  /** Overwrites of a file, by device and inode, come one after the other, so that contents are not mixed. */
  readonly overwrites = new KeyedQueue('overwrite the file', MAX_OVERWRITES);
  /** Bounds the bytes of small files that are kept in memory. */
  readonly small = new Semaphore(8 * 1024 * 1024);
  /** Bounds the bytes that are kept in memory because the disk is full. */
  readonly memory = new Semaphore(16 * 1024 * 1024);
  readonly uncommitted = new Semaphore(MAX_ALL_UNCOMMITTED);
  readonly lanes: Lanes;
  /** Every step that changes files passes this gate. */
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
  /** This replaces the metadata of every file. */
  readonly metadata: FileMetadata;
  readonly change: FileChange;
  /** Says whether files and directories are synced, by fsync(2), before the upload returns. */
  readonly durable: boolean;
  /** The signal aborts when the client disconnects. */
  readonly signal: AbortSignal;
  readonly shared: UploadResources;
}
