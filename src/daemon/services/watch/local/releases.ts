import { monotonicMs } from '../../../../base/monotonic.ts';
import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';

/** How many are released at once in each turn of the event loop; the rest follows in slices. */
const AT_ONCE = 64;
/** Time after which a slice ends, in milliseconds. */
const SLICE_MS = 4;

/** A directory of a tree, with those below. */
export interface WatchedDirectory {
  readonly children: ReadonlyMap<string, WatchedDirectory>;
  /** Its kernel watch, or null while there is none. */
  descriptor: number | null;
  /** Receives the events of that watch. */
  onEvent(event: InotifyEvent): void;
}

/** Releases the kernel watches of directories that have left their trees, and of all below, in slices. */
export class Releases {
  readonly #inTurn: (slice: () => void) => void;
  readonly #release: (directory: WatchedDirectory) => void;
  readonly #left: WatchedDirectory[] = [];
  #allowance = AT_ONCE;
  #isScheduled = false;

  /** `inTurn` runs a slice in a turn of its own; `release` removes the watch of one directory. */
  constructor(inTurn: (slice: () => void) => void, release: (directory: WatchedDirectory) => void) {
    this.#inTurn = inTurn;
    this.#release = release;
  }

  get isBusy(): boolean {
    return this.#left.length > 0;
  }

  add(directory: WatchedDirectory): void {
    if (this.#allowance === AT_ONCE) setImmediate(() => this.#renew());
    this.#left.push(directory);
    for (; this.#allowance > 0 && this.isBusy; this.#allowance--) this.#releaseNext();
    this.#goOn();
  }

  #renew(): void {
    this.#allowance = AT_ONCE;
  }

  #goOn(): void {
    if (this.#isScheduled || !this.isBusy) return;
    this.#isScheduled = true;
    this.#inTurn(() => this.#slice());
  }

  #slice(): void {
    this.#isScheduled = false;
    const deadline = monotonicMs() + SLICE_MS;
    do {
      for (let count = 0; count < AT_ONCE && this.isBusy; count++) this.#releaseNext();
    } while (this.isBusy && monotonicMs() < deadline);
    this.#goOn();
  }

  #releaseNext(): void {
    const directory = this.#left.pop();
    if (!directory) return;
    for (const child of directory.children.values()) this.#left.push(child);
    this.#release(directory);
  }
}
