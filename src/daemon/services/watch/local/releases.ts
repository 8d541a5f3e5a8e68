import { monotonicMs } from '../../../../base/monotonic.ts';
import type { InotifyEvent } from '../../../linux/inotify/inotify.ts';

/** How many watches each turn of the event loop releases at once. The rest follows in slices. */
const AT_ONCE = 64;
/** How long a slice may take, in milliseconds. */
const SLICE_MS = 4;

/** A directory of a tree, and through it those below. */
export interface WatchedDirectory {
  readonly children: ReadonlyMap<string, WatchedDirectory>;
  /** The kernel watch, or null while there is none. */
  descriptor: number | null;
  /** Takes an event of that watch. */
  onEvent(event: InotifyEvent): void;
}

/** Releases the kernel watches of directories that have left their trees, and of all directories below them, in slices. */
export class Releases {
  readonly #inTurn: (slice: () => void) => void;
  readonly #release: (directory: WatchedDirectory) => void;
  readonly #left: WatchedDirectory[] = [];
  #allowance = AT_ONCE;
  #isScheduled = false;

  /** `inTurn` runs a slice in a turn of the event loop of its own; `release` removes the watch of one directory. */
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
