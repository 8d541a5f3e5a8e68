import type { BytePath } from '../../os/byte-path.ts';
import type { InotifyEvent } from '../../os/inotify.ts';
import type { Directory, Look } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';
import type { Placement } from './placement.ts';
import { type Read, Reader } from './reader.ts';

/** Time after which a slice ends, in milliseconds. */
const SLICE_MS = 5;
const STEPS_BETWEEN_CLOCK_READS = 64;
/** Delay before a directory that was not found is tried again, in milliseconds; doubles each time. */
const RETRY_MS = 5;
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
 * it; otherwise it is surveyed again. See `docs/decisions/004-own-inotify.md`.
 */
export class Survey {
  readonly #kernel: KernelWatches;
  readonly #placement: Placement;
  readonly #tree: Surveyed;
  readonly #reader: Reader;
  readonly #queue: Directory[] = [];
  /** Directories that have been read, and whose events up to the read have been handled. */
  readonly #read: Directory[] = [];
  /** Reads whose events have not been handled yet, and delays. */
  #pending = 0;
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
    this.#queue.push(this.#tree.root);
    this.#goOn();
  }

  /** Surveys `directory` and all below after the queued events, which may affect it, have been handled. */
  request(directory: Directory): void {
    this.#queue.push(directory);
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
    const deadline = performance.now() + SLICE_MS;
    drain(this.#read, deadline, (directory) => this.#conclude(directory, deadline));
    const done: Directory[] = [];
    using descent = this.#placement.descend();
    drain(this.#queue, deadline, (directory) => {
      let result = this.#reader.step(directory, descent);
      while (result === 'more' && performance.now() < deadline)
        result = this.#reader.step(directory, descent);
      if (result === 'done') done.push(directory);
      else if (result === 'later') this.#wait(directory, (run) => this.#kernel.releases.whenDone(run));
      return result !== 'more';
    });
    if (done.length > 0) this.#concludeLater(done);
    this.#goOn();
  }

  #goOn(): void {
    if (this.#queue.length + this.#read.length > 0) this.#schedule((run) => this.#kernel.inTurn(run));
    else if (this.#pending === 0) this.#tree.surveyed();
  }

  /** Concludes the reads when all events up to now have been handled. */
  #concludeLater(directories: readonly Directory[]): void {
    this.#pending++;
    this.#kernel.whenPassed(() => {
      this.#pending--;
      for (const directory of directories) this.#read.push(directory);
      this.#attempt(() => this.#goOn());
    });
  }

  /** False when it has to be continued. */
  #conclude(directory: Directory, deadline: number): boolean {
    const { look } = directory;
    const top = directory.top();
    if (!look || top.gone) return true;
    if (top === this.#tree.root && look.moves === directory.moves && look.outcome === 'found') {
      return this.#accept(directory, look, deadline);
    }
    this.#placement.cancel(directory);
    if (top !== this.#tree.root) top.moving?.unsurveyed.push(directory);
    else if (look.moves === directory.moves && look.outcome === 'missing') this.#missed(directory);
    else this.#outran(directory);
    return true;
  }

  #accept(directory: Directory, look: Look, deadline: number): boolean {
    let steps = 0;
    const isLate = () => ++steps % STEPS_BETWEEN_CLOCK_READS === 0 && performance.now() > deadline;
    for (let next = look.unreported.next(); !next.done; next = look.unreported.next()) {
      const [name, isDirectory] = next.value;
      this.#tree.tellCreated(directory, name);
      if (isDirectory) this.request(directory.addChild(name));
      if (isLate()) return false;
    }
    for (let event = look.nextEvent(); event; event = look.nextEvent()) {
      this.#tree.replay(directory, event, look.known);
      if (isLate()) return false;
    }
    directory.look = null;
    directory.surveyed = true;
    return true;
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
    if (count === 0) this.request(directory);
    else this.#retry(directory, count, RETRY_MS * 2 ** Math.min(count - 1, PATIENT_MISSES));
  }

  #retry(directory: Directory, count: number, delayMs: number): void {
    const later = (run: () => void) => setTimeout(run, delayMs).unref();
    if (count <= PATIENT_MISSES) this.#wait(directory, later);
    else later(() => this.#attempt(() => this.request(directory)));
  }

  /** Surveys the directory later; the start of a watch waits for it. */
  #wait(directory: Directory, later: (run: () => void) => void): void {
    this.#pending++;
    later(() => {
      this.#pending--;
      this.#attempt(() => this.request(directory));
    });
  }
}

/** Removes items from the head of a list until a step returns false or the time is over. */
function drain<T>(list: T[], deadline: number, step: (item: T) => boolean): void {
  let done = 0;
  for (const item of list) {
    if (performance.now() > deadline || !step(item)) break;
    done++;
  }
  list.splice(0, done);
}
