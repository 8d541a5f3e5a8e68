import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

/** Time after IN_MOVED_FROM without IN_MOVED_TO, in milliseconds, after which a directory has left the tree. */
const PAIR_MS = 10;

interface Pending {
  readonly directory: Directory;
  readonly timer: NodeJS.Timeout;
}

/** Directories between IN_MOVED_FROM and IN_MOVED_TO. */
export class PendingMoves implements Disposable {
  readonly #kernel: KernelWatches;
  readonly #left: (directory: Directory) => void;
  readonly #byCookie = new Map<number, Pending>();

  /** `left` is called with each directory that has left the tree. */
  constructor(kernel: KernelWatches, left: (directory: Directory) => void) {
    this.#kernel = kernel;
    this.#left = left;
  }

  add(cookie: number, directory: Directory): void {
    directory.moving = { events: [], unsurveyed: [] };
    // IN_MOVED_TO may be queued already, if the event loop was busy.
    const timer = setTimeout(() => this.#kernel.whenSettled(() => this.#expire(cookie)), PAIR_MS);
    this.#byCookie.set(cookie, { directory, timer });
  }

  /** The directory with that cookie, or null. */
  take(cookie: number): Directory | null {
    const pending = this.#byCookie.get(cookie);
    if (!pending) return null;
    clearTimeout(pending.timer);
    this.#byCookie.delete(cookie);
    return pending.directory;
  }

  /** Treats all pending directories as having left the tree. */
  [Symbol.dispose](): void {
    for (const cookie of this.#byCookie.keys()) this.#expire(cookie);
  }

  #expire(cookie: number): void {
    const directory = this.take(cookie);
    if (directory) this.#left(directory);
  }
}
