import { closeSync } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import type { ChildLimits } from '../../os/program.ts';
import { contentOf, fileWith } from '../../os/shared-memory.ts';
import type { StoredDescriptor } from '../../os/systemd.ts';
import type { GuestState } from '../guest/guest.ts';
import type { VolumeState } from '../init/volumes.ts';
import type { ForwardsState } from '../ports/forwards.ts';
import type { CgroupRootState } from '../process/cgroup-root.ts';
import type { ProcessesState } from '../process/take-over.ts';
import type { WatchState } from '../watch/polled.ts';

/** Version of the state. Members may be added in a version; a program ignores those that it does not know. */
const VERSION = 1;
/** The oldest version of a state that this program reads. */
const OLDEST = 1;

export interface Head {
  readonly version: number;
  /** The oldest program, by the version of its own state, that can read this state. */
  readonly readableBy: number;
  /** The version of the build that has written it. */
  readonly build: string;
}

/** The state that a later program of this process continues with. */
export interface Handover {
  /** Descriptor of the listening socket. */
  readonly listener: number;
  readonly guest: GuestState;
  /** The time of the last /init that was applied, as a decimal number of nanoseconds; null: none. */
  readonly initTimestamp: string | null;
  readonly volumes: readonly VolumeState[];
  readonly watches: readonly WatchState[];
  readonly processes: ProcessesState;
  readonly limits: ChildLimits;
  /** Where the records for a crash are, see `RecordStore`; earlier versions have none. */
  readonly records?: readonly StoredDescriptor[];
  /** Earlier versions have none. */
  readonly forwards?: ForwardsState;
  /** Missing without cgroups, and in earlier versions. */
  readonly cgroupRoot?: CgroupRootState | undefined;
}

/** Writes a state to a file in memory; returns its descriptor. Without `handover`: only its version, for a trial. */
export function writeState(build: string, handover: Handover | null): number {
  return fileWith(Buffer.from(JSON.stringify({ ...headOf(build), ...handover })));
}

/** Throws `failed_precondition` when the state is of a version that this program cannot read. */
export function checkState(descriptor: number): void {
  parse(descriptor);
}

/** Reads the state of an earlier program, and closes it. Throws as `checkState`. */
export function readState(descriptor: number): Handover {
  // Written by a program of ours, in memory that only root can reach.
  const handover = parse(descriptor) as Head & Handover;
  closeSync(descriptor);
  return handover;
}

function parse(descriptor: number): Head {
  const state: Head = JSON.parse(contentOf(descriptor).toString());
  checkHead(state);
  return state;
}

/** The head that a program of this version writes. */
export function headOf(build: string): Head {
  return { version: VERSION, readableBy: VERSION, build };
}

/** Throws `failed_precondition` when this program cannot read a state with that head. */
export function checkHead(state: Head): void {
  if (state.version >= OLDEST && state.readableBy <= VERSION) return;
  const reads = OLDEST === VERSION ? `version ${VERSION}` : `versions ${OLDEST} to ${VERSION}`;
  throw new EnvdError(
    'failed_precondition',
    `the state of envd ${state.build} has version ${state.version}: this program reads ${reads}`,
  );
}
