import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

/** Time after IN_MOVED_FROM without IN_MOVED_TO, in milliseconds, after which a directory has left the tree. */
const PAIR_MS = 10;

/** Directories between IN_MOVED_FROM and IN_MOVED_TO. */
export class PendingMoves implements Disposable {
  readonly #kernel: KernelWatches;
  readonly #left: (directory: Directory) => void;
  /** By cookie. */
  readonly #directories = new Map<number, Directory>();
  readonly #timers = new Set<NodeJS.Timeout>();

  /** `left` is called with each directory that has left the tree. */
  constructor(kernel: KernelWatches, left: (directory: Directory) => void) {
    this.#kernel = kernel;
    this.#left = left;
  }

  add(cookie: number, directory: Directory): void {
    directory.held = [];
    this.#directories.set(cookie, directory);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      // IN_MOVED_TO may be queued already, if the event loop was busy.
      this.#kernel.whenPassed(() => this.#expire(cookie));
    }, PAIR_MS);
    this.#timers.add(timer);
  }

  /** The directory with that cookie, or null. */
  take(cookie: number): Directory | null {
    const directory = this.#directories.get(cookie);
    this.#directories.delete(cookie);
    return directory && !directory.gone ? directory : null;
  }

  /** Treats all pending directories as having left the tree. */
  [Symbol.dispose](): void {
    for (const timer of this.#timers) clearTimeout(timer);
    for (const cookie of [...this.#directories.keys()]) this.#expire(cookie);
  }

  #expire(cookie: number): void {
    const directory = this.take(cookie);
    if (directory) this.#left(directory);
  }
}
