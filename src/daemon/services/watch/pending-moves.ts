import type { Directory } from './directory.ts';
import type { KernelWatches } from './kernel-watches.ts';

/** IN_MOVED_TO follows IN_MOVED_FROM within microseconds; after so many ms the directory has left the tree. */
const PAIR_MS = 10;

/** Directories between IN_MOVED_FROM and IN_MOVED_TO, or on their way out of the tree. */
export class PendingMoves implements Disposable {
  readonly #kernel: KernelWatches;
  readonly #left: (directory: Directory) => void;
  /** By cookie. */
  readonly #directories = new Map<number, Directory>();
  readonly #timers = new Set<NodeJS.Timeout>();

  /** `left` gets the directories that moved out. */
  constructor(kernel: KernelWatches, left: (directory: Directory) => void) {
    this.#kernel = kernel;
    this.#left = left;
  }

  add(cookie: number, directory: Directory): void {
    directory.held = [];
    this.#directories.set(cookie, directory);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      // The event loop may have been busy for longer.
      this.#kernel.whenPassed(() => this.#expire(cookie));
    }, PAIR_MS);
    this.#timers.add(timer);
  }

  /** The directory that is to arrive, or null when there is none. */
  take(cookie: number): Directory | null {
    const directory = this.#directories.get(cookie);
    this.#directories.delete(cookie);
    return directory && !directory.gone ? directory : null;
  }

  /** Gives up all watches of directories under way. */
  [Symbol.dispose](): void {
    for (const timer of this.#timers) clearTimeout(timer);
    for (const cookie of [...this.#directories.keys()]) this.#expire(cookie);
  }

  #expire(cookie: number): void {
    const directory = this.take(cookie);
    if (directory) this.#left(directory);
  }
}
