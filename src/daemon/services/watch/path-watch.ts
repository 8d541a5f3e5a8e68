import { EnvdError } from '../../../base/errors.ts';
import { isAtOrBelow, type Mount, type MountTable } from '../../linux/paths/mounts.ts';
import { rootChange, type TreeChange, type WatchSink } from './local/event.ts';
import type { Outbox } from './outbox.ts';
import type { WatchRoot } from './root.ts';

export interface PathWatchOptions {
  readonly root: WatchRoot;
  readonly recursive: boolean;
  readonly outbox: Outbox;
  readonly mounts: MountTable;
  /** Starts an observer, and resolves when it observes everything. */
  readonly observe: (root: WatchRoot, sink: WatchSink, signal?: AbortSignal) => Promise<Disposable>;
  /** Finds the root again when mounts have changed. */
  readonly findAgain: (root: WatchRoot) => Promise<WatchRoot>;
}

/**
 * Watches what is visible at a path. When a mount has covered or uncovered something there, it starts a new observer. Once
 * that is live it replaces the other one, and the reader gets `rescan`.
 */
export class PathWatch implements Disposable {
  readonly #options: PathWatchOptions;
  readonly #closing = new AbortController();
  #root: WatchRoot;
  /** The mounts at the time when `#root` was last known to be what is visible at the path. */
  #mounts: readonly Mount[];
  #current: Observation;
  #isStarting = true;

  private constructor(options: PathWatchOptions) {
    this.#options = options;
    this.#root = options.root;
    this.#mounts = options.root.mounts;
    this.#current = this.#newObservation(true);
  }

  /** Starts a watch, and resolves when everything is watched. Throws what `observe` throws. */
  static async start(options: PathWatchOptions, signal?: AbortSignal): Promise<PathWatch> {
    const watch = new PathWatch(options);
    try {
      await watch.#current.start(options, options.root, signal);
      watch.#started();
      return watch;
    } catch (error) {
      watch[Symbol.dispose]();
      throw error;
    }
  }

  /** Call it when the mount table has been read again. It replaces the observer, or ends the watch, if that is needed. */
  check(): void {
    if (this.#isStarting || this.#isOver) return;
    // An unmount ends the observer of what was mounted. The news of either may come first, so the mounts are looked at
    // first.
    if (this.#isRemounted()) void this.#replace();
    else if (this.#current.outcome) this.#end(this.#current.outcome);
  }

  [Symbol.dispose](): void {
    this.#closing.abort();
    this.#current[Symbol.dispose]();
    this.#options.outbox[Symbol.dispose]();
  }

  get #isOver(): boolean {
    return this.#closing.signal.aborted;
  }

  #isRemounted(): boolean {
    const { mounts, recursive } = this.#options;
    const changed = mounts.changedSince(this.#mounts);
    this.#mounts = mounts.last;
    const { path } = this.#root;
    return changed.some((mount) => isAtOrBelow(mount, path) || (recursive && isAtOrBelow(path, mount)));
  }

  #started(): void {
    this.#isStarting = false;
    this.#checkNow();
  }

  #checkNow(): void {
    this.#options.mounts.read();
    this.check();
  }

  async #replace(): Promise<void> {
    const { findAgain, outbox } = this.#options;
    this.#isStarting = true;
    // Its changes are dropped until it replaces the other observer, because the `rescan` that follows covers them.
    const next = this.#newObservation(false);
    try {
      this.#root = await findAgain(this.#root);
      this.#closing.signal.throwIfAborted();
      this.#mounts = this.#root.mounts;
      await next.start(this.#options, this.#root, this.#closing.signal);
      this.#closing.signal.throwIfAborted();
    } catch (error) {
      next[Symbol.dispose]();
      if (!this.#isOver) this.#end(outcomeOf(error));
      return;
    }
    this.#current[Symbol.dispose]();
    this.#current = next;
    next.isCurrent = true;
    outbox.rescan();
    this.#started();
  }

  #newObservation(isCurrent: boolean): Observation {
    return new Observation(this.#options.outbox, isCurrent, (ended) => {
      if (ended === this.#current) this.#checkNow();
    });
  }

  #end({ error, last }: Outcome): void {
    this.#closing.abort();
    this.#current[Symbol.dispose]();
    if (last) this.#options.outbox.push(rootChange(last));
    this.#options.outbox.end(error);
  }
}

interface Outcome {
  readonly error: Error | null;
  /** What happened to the root, if that ended the observer. */
  readonly last: 'remove' | 'rename' | null;
}

function outcomeOf(error: unknown): Outcome {
  if (error instanceof EnvdError && error.kind === 'not_found') return { error: null, last: 'remove' };
  return { error: error instanceof Error ? error : new Error(String(error)), last: null };
}

/** Passes on the changes of one observer, and remembers how the observer ended. */
class Observation implements WatchSink, Disposable {
  isCurrent: boolean;
  outcome: Outcome | null = null;
  readonly #outbox: Outbox;
  readonly #onEnd: (ended: Observation) => void;
  #last: Outcome['last'] = null;
  #observer: Disposable | null = null;

  constructor(outbox: Outbox, isCurrent: boolean, onEnd: (ended: Observation) => void) {
    this.#outbox = outbox;
    this.isCurrent = isCurrent;
    this.#onEnd = onEnd;
  }

  async start({ observe }: PathWatchOptions, root: WatchRoot, signal?: AbortSignal): Promise<void> {
    this.#observer = await observe(root, this, signal);
  }

  push(change: TreeChange): void {
    const { type, name } = change;
    // The observer ends after this change. `Outcome` passes it on, unless another observer takes over.
    if (name === '.' && (type === 'remove' || type === 'rename')) this.#last = type;
    else if (this.isCurrent) this.#outbox.push(change);
  }

  end(error: Error | null): void {
    this.outcome = { error, last: this.#last };
    this.#onEnd(this);
  }

  [Symbol.dispose](): void {
    this.isCurrent = false;
    this.#observer?.[Symbol.dispose]();
  }
}
