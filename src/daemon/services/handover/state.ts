import { closeSync } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import { fileWith, linesOf } from '../../linux/memory/shared-memory.ts';
import type { ChildLimits } from '../../linux/processes/program.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';
import type { GuestState } from '../guest/guest.ts';
import type { VolumeState } from '../init/volumes.ts';
import type { ForwardsState } from '../ports/forwards.ts';
import type { CgroupRootState } from '../process/cgroups/cgroup-root.ts';
import { decodeState, encodeState } from '../process/lifecycle/process-state.ts';
import type { ProcessesSnapshot, ProcessesState } from '../process/recovery/take-over.ts';
import type { WatchEvent } from '../watch/local/event.ts';
import type { WatchState } from '../watch/polled.ts';

/** Version of the state. Members may be added in a version; a program ignores those that it does not know. */
const VERSION = 2;
/** The oldest version of a state that this program reads: it had everything in one line. */
const OLDEST = 1;
/** The oldest version that reads the records for a crash, whose form has not changed since. */
const RECORDS_READABLE_BY = 1;
/** Events of a watch in one line. */
const EVENTS_TOGETHER = 1024;

export interface Head {
  readonly version: number;
  /** The oldest program, by the version of its own state, that can read this state. */
  readonly readableBy: number;
  /** The version of the build that has written it. */
  readonly build: string;
}

/** The state that a later program of this process continues with. */
export interface Handover {
  /** The version of the build that has written it. */
  readonly build: string;
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

/** A state while it is written. */
export type Snapshot = Omit<Handover, 'build' | 'processes'> & { readonly processes: ProcessesSnapshot };

type ProcessLine = ReturnType<typeof encodeState<ProcessesState['processes'][number]>>;

/** A line after the first one: a process, a watch, or more events of the last watch. */
interface Line {
  readonly process?: ProcessLine;
  readonly watch?: WatchState;
  readonly events?: readonly WatchEvent[];
}

/** The first line. */
type FirstLine = Head &
  Omit<Handover, 'processes'> & {
    readonly processes: Omit<ProcessesState, 'processes'> & { readonly processes: readonly ProcessLine[] };
  };

/**
 * Writes a state to a file in memory, as lines of JSON; returns its descriptor. Without `state`: only its version, for a trial. Throws
 * `resource_exhausted` when it has more than `mostBytes`.
 */
export function writeState(
  build: string,
  state: Snapshot | null,
  mostBytes = Number.POSITIVE_INFINITY,
): number {
  return fileWith(bounded(linesWith(build, state), mostBytes));
}

/** Throws `failed_precondition` when the state is of a version that this program cannot read. */
export function checkState(descriptor: number): void {
  const [first = ''] = linesOf(descriptor);
  checkHead(JSON.parse(first));
}

/** Reads the state of an earlier program, and closes it. Throws as `checkState`. */
export function readState(descriptor: number): Handover {
  const lines = linesOf(descriptor);
  // Written by a program of ours, in memory that only root can reach.
  const first: FirstLine = JSON.parse(lines.next().value ?? '');
  checkHead(first);
  const processes = first.processes.processes.map(decodeState);
  const watches: (WatchState & { events: WatchEvent[] })[] = first.watches.map(withOwnEvents);
  for (const text of lines) {
    const { process, watch, events }: Line = JSON.parse(text);
    if (process) processes.push(decodeState(process));
    if (watch) watches.push(withOwnEvents(watch));
    if (events) watches.at(-1)?.events.push(...events);
  }
  closeSync(descriptor);
  return { ...first, watches, processes: { ...first.processes, processes } };
}

function withOwnEvents(watch: WatchState): WatchState & { events: WatchEvent[] } {
  return { ...watch, events: [...watch.events] };
}

function* linesWith(build: string, state: Snapshot | null): Generator<object> {
  const head: Head = { version: VERSION, readableBy: VERSION, build };
  if (state === null) {
    yield head;
    return;
  }
  const { processes, watches, ...others } = state;
  yield { ...head, ...others, watches: [], processes: { ...processes, processes: [] } };
  for (const process of processes.processes) yield { process: encodeState(process) } satisfies Line;
  for (const watch of watches) {
    yield { watch: { ...watch, events: [] } } satisfies Line;
    for (let from = 0; from < watch.events.length; from += EVENTS_TOGETHER)
      yield { events: watch.events.slice(from, from + EVENTS_TOGETHER) } satisfies Line;
  }
}

function* bounded(lines: Iterable<object>, mostBytes: number): Generator<Buffer> {
  let sum = 0;
  for (const line of lines) {
    const text = Buffer.from(`${JSON.stringify(line)}\n`);
    sum += text.length;
    if (sum > mostBytes) {
      const reason = `the state has more than ${mostBytes} bytes: wait until processes have read their input`;
      throw new EnvdError('resource_exhausted', `cannot hand over: ${reason}`);
    }
    yield text;
  }
}

/** The head of the records that a program of this version writes. */
export function headOf(build: string): Head {
  return { version: VERSION, readableBy: RECORDS_READABLE_BY, build };
}

/** Throws `failed_precondition` when this program cannot read a state with that head. */
export function checkHead(state: Head): void {
  if (state.version >= OLDEST && state.readableBy <= VERSION) return;
  const reads = `versions ${OLDEST} to ${VERSION}`;
  throw new EnvdError(
    'failed_precondition',
    `the state of envd ${state.build} has version ${state.version}: this program reads ${reads}`,
  );
}
