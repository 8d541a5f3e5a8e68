import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { Semaphore } from '../../../base/semaphore.ts';
import type { KeepOutput } from '../../../gen/process/process_pb.js';
import type { OpenFile } from '../../linux/files/open-file.ts';
import type { ExtensionState, HandedOverPart } from '../../services/handover/state.ts';
import type { EndedProcess } from '../../services/process/lifecycle/ended.ts';
import type { ManagedProcess } from '../../services/process/lifecycle/process.ts';
import type { Selector } from '../../services/process/lifecycle/process-index.ts';
import type { Prepared } from '../../services/process/lifecycle/start.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import type { RecordStore } from '../../services/records/record-store.ts';
import type { Disk } from './disk.ts';
import { LastingOutput } from './lasting-output.ts';
import { afterCrash, EXTENSION, type OutputPlace, OutputPlaces } from './output-places.ts';
import { costOf, type LastingState, newState } from './state.ts';
import { termsOf } from './terms.ts';

/** The output of this many processes is kept at a time, because each takes a descriptor. */
const MOST_KEPT = 1024;
const UNWRITTEN = 'the daemon ended before all was written';

/** The output of all processes that is kept after their end. */
export class LastingOutputs implements HandedOverPart {
  readonly extension = EXTENSION;
  readonly #processes: ProcessTable;
  readonly #disk: Disk;
  readonly #stopping: AbortSignal;
  readonly #bytes: Semaphore;
  readonly #places: OutputPlaces;
  /** In the order of the starts, with the bytes that each has taken. */
  readonly #kept = new Map<LastingOutput, number>();

  /** `mostBytes` bounds all together. When `stopping` aborts, processes wait for the disk no longer. */
  constructor(
    processes: ProcessTable,
    records: RecordStore,
    disk: Disk,
    mostBytes: number,
    stopping: AbortSignal,
  ) {
    this.#places = new OutputPlaces(records, MOST_KEPT);
    this.#processes = processes;
    this.#disk = disk;
    this.#bytes = new Semaphore(mostBytes);
    this.#stopping = stopping;
    onAbort(stopping, () => {
      for (const kept of this.#kept.keys()) kept.close();
    });
  }

  /**
   * Prepares to keep the output of a process that is about to be started. Throws `invalid_argument`, `resource_exhausted` at the limits
   * of all together, and what `Disk.open` throws.
   */
  async prepare(wanted: KeepOutput, isTerminal: boolean): Promise<Prepared> {
    const state = newState(termsOf(wanted), isTerminal);
    const cost = costOf(state);
    const place = this.#take(cost);
    if (typeof place === 'string') throw new EnvdError('resource_exhausted', `cannot keep output: ${place}`);
    const file = await this.#disk.open().catch((error: unknown) => {
      place[Symbol.dispose]();
      this.#bytes.release(cost);
      throw error;
    });
    const kept = new LastingOutput(state, file, this.#disk, place);
    this.#kept.set(kept, cost);
    let isStarted = false;
    return {
      started: (process) => {
        isStarted = true;
        if (this.#stopping.aborted) kept.close();
        void this.#keep(kept, process, false);
      },
      [Symbol.dispose]: () => {
        if (!isStarted) this.#drop(kept);
      },
    };
  }

  /** Returns what is kept of a process; if several had the tag, of the latest one. Throws `not_found`. */
  find(selector: Selector): LastingOutput {
    const known = [...this.#kept.keys()].filter((one) => one.isNamed(selector));
    const current = this.#current(selector, known.length > 0);
    const found = known.findLast((one) => current === null || one.isOf(current));
    if (found) return found;
    const name = 'pid' in selector ? `pid ${selector.pid}` : `tag ${selector.tag}`;
    throw new EnvdError(
      'not_found',
      `no output of the process with ${name} is kept: start it with keepOutput`,
    );
  }

  get states(): ExtensionState[] {
    return [...this.#kept.keys()].filter(({ state }) => state.pid !== 0).map(({ handedOver }) => handedOver);
  }

  /** Continues with an output of an earlier program. What is beyond the limits of this one is dropped. */
  continueFrom({ record, descriptors: [file = -1, memory], state: given }: ExtensionState): void {
    // The shape is not checked: an envd has written it, in memory that only root can reach.
    const left = given as LastingState;
    this.#continueWith(memory === undefined ? left : afterCrash(left, memory), this.#disk.own(file), record);
  }

  #continueWith(found: LastingState, file: OpenFile, record: string): void {
    const process = this.#current({ pid: found.pid }, true);
    // Another process may have its pid by now, if it has ended.
    const isSame =
      process && (found.end === null || ('endedAt' in process && process.endedAt === found.endedAt));
    const isLost = !isSame && !found.isComplete;
    const state = isLost ? { ...found, isComplete: true, error: found.error ?? UNWRITTEN } : found;
    const cost = costOf(state);
    const place = this.#take(cost, record);
    if (typeof place === 'string') {
      this.#disk.close(file);
      return;
    }
    const kept = new LastingOutput(state, file, this.#disk, place);
    this.#kept.set(kept, cost);
    if (isSame) void this.#keep(kept, process, true);
    else {
      kept.finish();
      this.#dropLater(kept);
    }
  }

  async #keep(kept: LastingOutput, process: ManagedProcess | EndedProcess, resumes: boolean): Promise<void> {
    const isComplete = kept.keep(process, resumes);
    void ended(process).then(() => this.#dropLater(kept));
    await isComplete;
    const taken = this.#kept.get(kept);
    if (taken === undefined) return;
    const cost = costOf(kept.state);
    this.#bytes.release(taken - cost);
    this.#kept.set(kept, cost);
  }

  #dropLater(kept: LastingOutput): void {
    setTimeout(() => this.#drop(kept), kept.leftMs ?? 0).unref();
  }

  #drop(kept: LastingOutput): void {
    const cost = this.#kept.get(kept);
    if (cost === undefined) return;
    this.#kept.delete(kept);
    this.#bytes.release(cost);
    kept.forget();
  }

  /** Takes bytes, and a place with this record. Returns why there is none, if so. */
  #take(cost: number, record?: string): OutputPlace | string {
    const place = this.#places.take(record);
    if (place === null)
      return `that of ${MOST_KEPT} processes is kept: ask for fewer seconds, or try again later`;
    if (this.#bytes.take(cost)) return place;
    place[Symbol.dispose]();
    const left = this.#bytes.most - this.#bytes.taken;
    return `it takes ${cost} bytes, and ${left} of ${this.#bytes.most} are left (--output-bytes): ask for less`;
  }

  /** Returns the process that has this name now, or null. Throws `not_found` unless `isKnown`. */
  #current(selector: Selector, isKnown: boolean): ManagedProcess | EndedProcess | null {
    try {
      return this.#processes.findRetained(selector);
    } catch (error) {
      if (isKnown && error instanceof EnvdError && error.kind === 'not_found') return null;
      throw error;
    }
  }
}

async function ended(process: ManagedProcess | EndedProcess): Promise<void> {
  if ('ended' in process) await process.ended;
}
