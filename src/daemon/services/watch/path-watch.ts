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
  /** Starts an observer; resolves when it observes everything. */
  readonly observe: (root: WatchRoot, sink: WatchSink, signal?: AbortSignal) => Promise<Disposable>;
  /** Finds the root again when mounts have changed. */
  readonly findAgain: (root: WatchRoot) => Promise<WatchRoot>;
}

/**
 * A watch of what is visible at a path. When a mount has covered or uncovered something there, a new observer is started;
 * once it is live it replaces the other one, and the reader gets `rescan`.
 */
export class PathWatch implements Disposable {
  readonly #options: PathWatchOptions;
  readonly #closing = new AbortController();
  #root: WatchRoot;
  /** The mounts with which `#root` was last known to be what is visible at the path. */
  #mounts: readonly Mount[];
  #current: Observation;
  /** Whether an observer is being started. */
  #isStarting = true;

  private constructor(options: PathWatchOptions) {
    this.#options = options;
    this.#root = options.root;
    this.#mounts = options.root.mounts;
    // What the first observer tells is passed on from the start.
    this.#current = this.#newObservation(true);
  }

  /** Resolves when everything is watched. Throws what the start of the observer throws. */
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

  /** Goes on after a change of the mounts, which have just been read, or the end of the observer. */
  check(): void {
    if (this.#isStarting || this.#isOver) return;
    // An unmount ends the observer of what was mounted, before or after the mounts are known to have changed.
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
    // What it tells before it replaces the other one precedes the `rescan`, which covers it.
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

/** How an observer has ended. */
interface Outcome {
  readonly error: Error | null;
  /** What has happened to the root. */
  readonly last: 'remove' | 'rename' | null;
}

function outcomeOf(error: unknown): Outcome {
  if (error instanceof EnvdError && error.kind === 'not_found') return { error: null, last: 'remove' };
  return { error: error instanceof Error ? error : new Error(String(error)), last: null };
}

/** An observer, and how it has ended. */
class Observation implements WatchSink, Disposable {
  /** Whether its changes are passed on. */
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
    // The end of the watch follows.
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
