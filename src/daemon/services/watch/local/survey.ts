import { monotonicMs } from '../../../../base/monotonic.ts';
import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Directory, Look } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { Placement } from './placement.ts';
import { type Read, Reader } from './reader.ts';

/** Time after which a slice ends, in milliseconds. */
const SLICE_MS = 5;
const STEPS_BETWEEN_CLOCK_READS = 64;
/** Delay before a directory that was not found is tried again, in milliseconds; doubles each time. */
const RETRY_MS = 5;
/** For how long the start of a watch waits for directories that are made meanwhile, in milliseconds. */
const PATIENCE_MS = 1000;
/** The number of attempts (0.3 s) that the start of a watch waits for. */
const PATIENT_MISSES = 6;
/** The number of attempts (10 s) after which a directory counts as removed. */
const MAX_MISSES = 11;

/** What a survey needs of its tree. */
export interface Surveyed extends Read {
  tellCreated(directory: Directory, name: BytePath): void;
  /** Applies an event that was queued during the survey, which has found the entries `known`. */
  replay(directory: Directory, event: InotifyEvent, known: Look['known']): void;
  /** The directory is not at its path in the tree, and no event explains that. */
  vanished(directory: Directory): void;
  /** All directories have been surveyed. */
  surveyed(): void;
  fail(error: unknown): void;
}

/**
 * Surveys directories, in slices: adds a watch to each, then reads its names. The tree follows the events and lags
 * behind the file system. A directory is therefore opened through its parent, which is known to be the watched one. Its
 * names are accepted only after all events up to the read have been handled, and only if none of them moved or removed
 * it; otherwise it is surveyed again. See `docs/decisions/012-inotify.md`.
 */
export class Survey {
  readonly #kernel: KernelWatches;
  readonly #placement: Placement;
  readonly #tree: Surveyed;
  readonly #reader: Reader;
  readonly #queue: Directory[] = [];
  /** Directories that have been read, and whose events up to the read have been handled. */
  readonly #read: Directory[] = [];
  /** Directories that the start of the watch waits for. */
  readonly #awaited = new Set<Directory>();
  /** Until then it also waits for new directories. */
  #patientUntil = 0;
  #scheduled = false;
  #stopped = false;

  constructor(kernel: KernelWatches, placement: Placement, tree: Surveyed) {
    this.#kernel = kernel;
    this.#placement = placement;
    this.#tree = tree;
    this.#reader = new Reader(kernel, placement, tree);
  }

  /** Surveys the root and all below. */
  start(): void {
    this.#patientUntil = monotonicMs() + PATIENCE_MS;
    this.#awaited.add(this.#tree.root);
    this.#queue.push(this.#tree.root);
    this.#goOn();
  }

  /** Surveys `directory` and all below after the queued events, which may affect it, have been handled. */
  request(directory: Directory): void {
    if (!this.#tree.live && monotonicMs() < this.#patientUntil) this.#awaited.add(directory);
    this.#enqueue(directory);
  }

  #enqueue(directory: Directory): void {
    if (directory.look?.isAccepted) this.#read.push(directory);
    else this.#queue.push(directory);
    this.#schedule((run) => this.#kernel.whenDrained(run));
  }

  stop(): void {
    this.#stopped = true;
    this.#reader[Symbol.dispose]();
  }

  #schedule(later: (run: () => void) => void): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    later(() => {
      this.#scheduled = false;
      this.#attempt(() => this.#slice());
    });
  }

  #attempt(step: () => void): void {
    if (this.#stopped) return;
    try {
      step();
    } catch (error) {
      this.#tree.fail(error);
    }
  }

  #slice(): void {
    const deadline = monotonicMs() + SLICE_MS;
    this.#concludeRead(deadline);
    const done: Directory[] = [];
    using descent = this.#placement.descend();
    drain(this.#queue, deadline, (directory) => {
      if (this.#stopped) return false;
      let result = this.#reader.step(directory, descent);
      while (result === 'more' && monotonicMs() < deadline) result = this.#reader.step(directory, descent);
      if (result === 'done') done.push(directory);
      else if (result === 'later')
        this.#requestLater(directory, (run) => this.#kernel.releases.whenDone(run));
      else if (result === 'none' && !directory.look) this.#awaited.delete(directory);
      return result !== 'more';
    });
    if (this.#stopped) return;
    if (done.length > 0) this.#concludeLater(done);
    this.#goOn();
  }

  #goOn(): void {
    if (this.#queue.length + this.#read.length > 0) this.#schedule((run) => this.#kernel.inTurn(run));
    if (this.#awaited.size === 0) this.#tree.surveyed();
  }

  /** Concludes the reads when all events up to now have been handled. */
  #concludeLater(directories: readonly Directory[]): void {
    this.#kernel.whenPassed(() => {
      for (const directory of directories) this.#read.push(directory);
      this.#attempt(() => {
        this.#concludeRead(monotonicMs() + SLICE_MS);
        this.#goOn();
      });
    });
  }

  #concludeRead(deadline: number): void {
    drain(this.#read, deadline, (directory) => this.#conclude(directory, deadline));
  }

  /** False when it has to be continued. */
  #conclude(directory: Directory, deadline: number): boolean {
    const { look } = directory;
    const top = directory.top();
    if (top !== this.#tree.root) this.#awaited.delete(directory);
    if (!look || top.gone) return true;
    const isValid = look.isAccepted || (look.moves === directory.moves && look.outcome === 'found');
    if (top === this.#tree.root && isValid) return this.#accept(directory, look, deadline);
    if (!look.isAccepted) this.#placement.cancel(directory);
    if (top !== this.#tree.root) top.moving?.unsurveyed.push(directory);
    else if (look.moves === directory.moves && look.outcome === 'missing') this.#missed(directory);
    else this.#outran(directory);
    return true;
  }

  #accept(directory: Directory, look: Look, deadline: number): boolean {
    look.isAccepted = true;
    let steps = 0;
    const isLate = () => ++steps % STEPS_BETWEEN_CLOCK_READS === 0 && monotonicMs() > deadline;
    for (let next = look.unreported.next(); !next.done; next = look.unreported.next()) {
      const [name, isDirectory] = next.value;
      this.#tree.tellCreated(directory, name);
      if (isDirectory) this.#found(directory, directory.addChild(name));
      if (isLate()) return false;
    }
    directory.surveyedMs = Date.now() + 1;
    for (let event = look.nextEvent(); event; event = look.nextEvent()) {
      this.#tree.replay(directory, event, look.known);
      if (isLate()) return false;
    }
    directory.look = null;
    directory.surveyed = true;
    this.#awaited.delete(directory);
    return true;
  }

  #found(parent: Directory, directory: Directory): void {
    if (this.#awaited.has(parent)) this.#awaited.add(directory);
    this.#enqueue(directory);
  }

  /** Tries again later: the event of a move or removal comes shortly after it, later on a busy system. */
  #missed(directory: Directory): void {
    const count = ++directory.misses;
    if (count > (directory === this.#tree.root ? PATIENT_MISSES : MAX_MISSES)) this.#tree.vanished(directory);
    else this.#retry(directory, count, RETRY_MS * 2 ** (count - 1));
  }

  /** The tree lags behind changes: tries again, as long as they go on. */
  #outran(directory: Directory): void {
    const count = directory.outran++;
    if (count === 0) this.#enqueue(directory);
    else this.#retry(directory, count, RETRY_MS * 2 ** Math.min(count - 1, PATIENT_MISSES));
  }

  #retry(directory: Directory, count: number, delayMs: number): void {
    if (count > PATIENT_MISSES) this.#awaited.delete(directory);
    this.#requestLater(directory, (run) => setTimeout(run, delayMs).unref());
  }

  #requestLater(directory: Directory, later: (run: () => void) => void): void {
    later(() => this.#attempt(() => this.#enqueue(directory)));
  }
}

/** Removes items from the head of a list until a step returns false or the time is over. */
function drain<T>(list: T[], deadline: number, step: (item: T) => boolean): void {
  let done = 0;
  for (const item of list) {
    if (monotonicMs() > deadline || !step(item)) break;
    done++;
  }
  list.splice(0, done);
}
