import { monotonicMs } from '../../../../base/monotonic.ts';

/** How many are released at once in each turn of the event loop; the rest follows in slices. */
const AT_ONCE = 64;
/** Time after which a slice ends, in milliseconds. */
const SLICE_MS = 4;

/** A directory that has left its tree. */
export interface Releasable {
  readonly children: ReadonlyMap<string, Releasable>;
  /** Removes its kernel watch, not those below. */
  release(): void;
}

/** Releases directories and all below, in slices. */
export class Releases {
  readonly #inTurn: (slice: () => void) => void;
  readonly #left: Releasable[] = [];
  readonly #waiting: (() => void)[] = [];
  #allowance = AT_ONCE;
  #scheduled = false;

  /** `inTurn` runs a slice in a turn of its own. */
  constructor(inTurn: (slice: () => void) => void) {
    this.#inTurn = inTurn;
  }

  get isBusy(): boolean {
    return this.#left.length > 0;
  }

  add(directory: Releasable): void {
    if (this.#allowance === AT_ONCE) setImmediate(() => this.#renew());
    this.#left.push(directory);
    for (; this.#allowance > 0 && this.isBusy; this.#allowance--) this.#releaseNext();
    this.#goOn();
  }

  /** Calls back once, when everything has been released. */
  whenDone(callback: () => void): void {
    if (this.isBusy) this.#waiting.push(callback);
    else callback();
  }

  #renew(): void {
    this.#allowance = AT_ONCE;
  }

  #goOn(): void {
    if (this.#scheduled || !this.isBusy) return;
    this.#scheduled = true;
    this.#inTurn(() => this.#slice());
  }

  #slice(): void {
    this.#scheduled = false;
    const deadline = monotonicMs() + SLICE_MS;
    do {
      for (let count = 0; count < AT_ONCE && this.isBusy; count++) this.#releaseNext();
    } while (this.isBusy && monotonicMs() < deadline);
    this.#goOn();
    if (!this.isBusy) for (const callback of this.#waiting.splice(0)) callback();
  }

  #releaseNext(): void {
    const directory = this.#left.pop();
    if (!directory) return;
    for (const child of directory.children.values()) this.#left.push(child);
    directory.release();
  }
}
