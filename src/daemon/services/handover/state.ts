import { closeSync } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import { fileWith, linesOf } from '../../linux/memory/shared-memory.ts';
import { type ChildLimits, fromEarlierProgram } from '../../linux/processes/program.ts';
import type { StoredDescriptor } from '../../linux/system/systemd.ts';
import type { GuestState } from '../guest/guest.ts';
import type { VolumeState } from '../init/volumes.ts';
import type { ForwardsState } from '../ports/forwards.ts';
import type { CgroupRoot } from '../process/cgroups/cgroup-root.ts';
import type { EarlierProcess, EarlierProcesses, ProcessesSnapshot } from '../process/lifecycle/earlier.ts';
import {
  decodeProcess,
  type EncodedProcess,
  encodeProcess,
  type RecordedState,
  withDescriptors,
} from '../process/lifecycle/process-state.ts';
import type { WatchEvent } from '../watch/local/event.ts';
import type { WatchState } from '../watch/polled.ts';

/**
 * The version of what a daemon leaves to the next one: a state in an upgrade, records for after a crash, and the kept output. Members
 * may be added within a version, because a program ignores those that it does not know.
 */
const VERSION = 1;
/** The most events of a watch in one line. */
const EVENTS_TOGETHER = 1024;
/** The key of the kept output, which all processes share in an upgrade. */
const OUTPUT = 'handed over';

export interface Head {
  readonly version: number;
  /** The oldest program, by the version of its own state, that can read this state. */
  readonly readableBy: number;
  /** The version of the build that has written the state. */
  readonly build: string;
}

export interface Settings {
  readonly guest: GuestState;
  /** The timestamp of the last /init that was applied, in nanoseconds as a decimal text; null when there was none. */
  readonly initTimestamp: string | null;
  readonly volumes: readonly VolumeState[];
}

/** One thing that an extension hands over. */
export interface ExtensionState {
  readonly extension: string;
  /** The key of its record. */
  readonly record: string;
  readonly descriptors: readonly number[];
  /** The rest, as JSON can represent it. */
  readonly state: unknown;
}

/** An extension that continues in the next program. */
export interface HandedOverPart {
  readonly extension: string;
  readonly states: readonly ExtensionState[];
  /**
   * Takes a state of its extension, with the descriptors: one of `states` in an upgrade, one that the extension has recorded after
   * a crash. Is called after the processes were taken over.
   */
  continueFrom(state: ExtensionState): void;
}

/** Everything that is handed over besides processes. */
interface Others extends Settings {
  /** The descriptor of the listening socket, which the next program inherits with this number. */
  readonly listener: number;
  readonly watches: readonly WatchState[];
  readonly limits: ChildLimits;
  /** The queues with the records for a crash. See `RecordStore`. */
  readonly records: readonly StoredDescriptor[];
  readonly forwards: ForwardsState;
  readonly cgroupRoot: CgroupRoot | undefined;
  readonly extensions: readonly ExtensionState[];
}

/** The state that a program writes. */
export interface Snapshot extends Others {
  readonly processes: ProcessesSnapshot;
}

/** The state that a program has read, and continues with. */
export interface Handover extends Others {
  /** The version of the build that has written the state. */
  readonly build: string;
  readonly processes: EarlierProcesses;
}

type ProcessLine = EncodedProcess & Pick<RecordedState, 'record'>;

type FirstLine = Head &
  Omit<Others, 'watches'> & { readonly processes: Omit<ProcessesSnapshot, 'processes'> };

/** A line after the first one: a process, a watch, or more events of the last watch. */
interface Line {
  readonly process?: ProcessLine;
  readonly watch?: WatchState;
  readonly events?: readonly WatchEvent[];
}

type Renumber = (descriptor: number) => number;

/**
 * Writes a state to a file in memory, as lines of JSON; returns the descriptor of the file. `copy` duplicates descriptors for
 * the next program. Throws `resource_exhausted` when the state has more than `mostBytes`.
 */
export function writeState(
  build: string,
  state: Snapshot,
  copy: Renumber,
  mostBytes = Number.POSITIVE_INFINITY,
): number {
  return fileWith(bounded(linesWith(build, state, copy), mostBytes));
}

/** Writes nothing but the version of a state, for a trial; returns the descriptor of the file in memory. */
export function writeVersion(build: string): number {
  return fileWith(bounded([headOf(build)], Number.POSITIVE_INFINITY));
}

/** Throws `failed_precondition` when the state is of a version that this program cannot read. */
export function checkState(descriptor: number): void {
  const [first = ''] = linesOf(descriptor);
  checkHead(JSON.parse(first));
}

/**
 * Reads the state of an earlier program, and closes the file. `own` turns descriptors of the earlier program into those of
 * this one, except for the listening socket. Throws what `checkState` throws.
 */
export function readState(descriptor: number, own: Renumber = fromEarlierProgram): Handover {
  const lines = linesOf(descriptor);
  // The shape is not checked: an envd has written it, in memory that only root can reach.
  const first: FirstLine = JSON.parse(lines.next().value ?? '');
  checkHead(first);
  const processes: EarlierProcess[] = [];
  const watches: (WatchState & { readonly events: WatchEvent[] })[] = [];
  for (const text of lines) {
    const { process, watch, events }: Line = JSON.parse(text);
    if (process) processes.push({ ...decodeProcess(process, own), record: process.record, output: OUTPUT });
    if (watch) watches.push({ ...watch, events: [] });
    if (events) watches.at(-1)?.events.push(...events);
  }
  closeSync(descriptor);
  const { drains, memory, leaves, starting } = first.processes;
  return {
    ...first,
    ...renumbered(first, own),
    watches,
    processes: {
      processes,
      outputs: new Map(memory === null ? [] : [[OUTPUT, own(memory)]]),
      inFlight: null,
      drains: drains.map(own),
      leaves,
      starting,
    },
  };
}

type Renumbered = Pick<Others, 'records' | 'forwards' | 'cgroupRoot'>;

/** Returns the same with other numbers of descriptors. An earlier version may have written no extensions. */
function renumbered(
  { records, forwards, cgroupRoot, extensions = [] }: Renumbered & Partial<Pick<Others, 'extensions'>>,
  renumber: Renumber,
) {
  const withOther = <T extends { readonly descriptor: number }>(one: T): T => ({
    ...one,
    descriptor: renumber(one.descriptor),
  });
  return {
    records: records.map(({ name, descriptor }) => withOther({ name, descriptor })),
    forwards: { ...forwards, forwards: forwards.forwards.map(withOther) },
    cgroupRoot: cgroupRoot && { ...cgroupRoot, lock: renumber(cgroupRoot.lock) },
    extensions: extensions.map((one) => ({ ...one, descriptors: one.descriptors.map(renumber) })),
  };
}

function* linesWith(build: string, state: Snapshot, copy: Renumber): Generator<object> {
  const { processes, watches, ...others } = state;
  const { processes: all, ...shared } = processes;
  const memory = shared.memory === null ? null : copy(shared.memory);
  yield {
    ...headOf(build),
    ...others,
    ...renumbered(others, copy),
    processes: { ...shared, drains: shared.drains.map(copy), memory },
  } satisfies FirstLine;
  for (const process of all) yield { process: encodeProcess(withDescriptors(process, copy)) } satisfies Line;
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

/** Returns the head of a state and of the records that a program of this version writes. */
export function headOf(build: string): Head {
  return { version: VERSION, readableBy: VERSION, build };
}

/** Throws `failed_precondition` when this program cannot read a state with that head. */
export function checkHead({ version, readableBy, build }: Head): void {
  if (readableBy <= VERSION) return;
  throw new EnvdError(
    'failed_precondition',
    `the state of envd ${build} has version ${version}: this program reads version ${VERSION}`,
  );
}
