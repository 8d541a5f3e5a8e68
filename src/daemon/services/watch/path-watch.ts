import { EnvdError } from '../../../base/errors.ts';
import type { BytePath } from '../../linux/paths/byte-path.ts';
import { isAtOrBelow, type Mount, type MountTable } from '../../linux/paths/mounts.ts';
import type { WatchEvent, WatchEventType, WatchSink } from './local/event.ts';
import type { Outbox } from './outbox.ts';
import type { WatchRoot } from './root.ts';

/** What observes a directory and tells its changes to a sink. */
export interface Observer extends Disposable {
  start(signal?: AbortSignal): Promise<void>;
}

export interface PathWatchOptions {
  readonly root: WatchRoot;
  readonly recursive: boolean;
  readonly outbox: Outbox;
  readonly mounts: MountTable;
  readonly observe: (root: WatchRoot, sink: WatchSink) => Observer;
  /** Finds the root again when mounts have changed. */
  readonly findAgain: (root: WatchRoot) => Promise<WatchRoot>;
}

/**
 * A watch of what is visible at a path. When a mount has covered or uncovered something there, a new observer is started;
 * once it is live it replaces the other one, and the reader gets `rescan`.
 */
export class PathWatch implements Disposable {
  readonly #options: PathWatchOptions;
  #root: WatchRoot;
  /** The mounts with which `#root` was last known to be what is visible at the path. */
  #mounts: readonly Mount[];
  #current: Observation;
  #next: Observation | null = null;
  /** Whether an observer is being started. */
  #isStarting = true;
  #isOver = false;

  constructor(options: PathWatchOptions) {
    this.#options = options;
    this.#root = options.root;
    this.#mounts = options.root.mounts;
    this.#current = this.#observation();
  }

  /** Resolves when everything is watched. Throws what the start of the observer throws. */
  async start(signal?: AbortSignal): Promise<void> {
    await this.#current.observer.start(signal);
    this.#started();
  }

  next(most?: number): Promise<readonly WatchEvent[] | null> {
    return this.#options.outbox.next(most);
  }

  take(most?: number): readonly WatchEvent[] | null {
    return this.#options.outbox.take(most);
  }

  /** Starts a new observer if a change of the mounts, which have just been read, has changed what is visible. */
  check(): void {
    if (!this.#isStarting && !this.#isOver && this.#isRemounted()) void this.#replace();
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    this.#next?.observer[Symbol.dispose]();
    this.#current.observer[Symbol.dispose]();
    this.#options.outbox[Symbol.dispose]();
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
    this.#options.mounts.read();
    if (this.#current.outcome) this.#ended(this.#current.outcome);
    else this.check();
  }

  async #replace(): Promise<void> {
    this.#isStarting = true;
    try {
      this.#root = await this.#options.findAgain(this.#root);
      if (this.#isOver) return;
      this.#mounts = this.#root.mounts;
      this.#next = this.#observation();
      await this.#next.observer.start();
      if (this.#isOver) return;
    } catch (error) {
      this.#fail(error);
      return;
    }
    this.#current.observer[Symbol.dispose]();
    [this.#current, this.#next] = [this.#next, null];
    this.#options.outbox.rescan();
    this.#started();
  }

  #observation(): Observation {
    const { observe, outbox } = this.#options;
    const observation: Observation = new Observation(
      (sink) => observe(this.#root, sink),
      // What happens before an observer replaces the other one precedes the `rescan`, which covers it.
      (...event) => observation === this.#current && outbox.push(...event),
      (outcome) => observation === this.#current && !this.#isStarting && this.#ended(outcome),
    );
    return observation;
  }

  /** An unmount ends the observer of what was mounted, before or after the mounts are known to have changed. */
  #ended({ error, last }: Outcome): void {
    if (this.#isOver) return;
    this.#options.mounts.read();
    if (this.#isRemounted()) void this.#replace();
    else this.#end(error, last);
  }

  #fail(error: unknown): void {
    if (this.#isOver) return;
    this.#next?.observer[Symbol.dispose]();
    this.#current.observer[Symbol.dispose]();
    if (error instanceof EnvdError && error.kind === 'not_found') this.#end(null, 'remove');
    else this.#end(error instanceof Error ? error : new Error(String(error)), null);
  }

  #end(error: Error | null, last: Outcome['last']): void {
    this.#isOver = true;
    if (last) this.#options.outbox.push(last, '', '.');
    this.#options.outbox.end(error);
  }
}

/** How an observer has ended. */
interface Outcome {
  readonly error: Error | null;
  /** What has happened to the root. */
  readonly last: 'remove' | 'rename' | null;
}

/** An observer, and how it has ended. */
class Observation implements WatchSink {
  readonly observer: Observer;
  outcome: Outcome | null = null;
  readonly push: WatchSink['push'];
  readonly #onEnd: (outcome: Outcome) => void;
  #last: Outcome['last'] = null;

  constructor(
    observe: (sink: WatchSink) => Observer,
    onEvent: WatchSink['push'],
    onEnd: (outcome: Outcome) => void,
  ) {
    this.#onEnd = onEnd;
    this.push = (type: WatchEventType, directory: BytePath, name: BytePath, movedFrom = null) => {
      if (name === '.' && (type === 'remove' || type === 'rename')) this.#last = type;
      else onEvent(type, directory, name, movedFrom);
    };
    this.observer = observe(this);
  }

  end(error: Error | null = null): void {
    this.outcome = { error, last: this.#last };
    this.#onEnd(this.outcome);
  }
}
