import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import {
  decodeEvents,
  IN_DONT_FOLLOW,
  IN_IGNORED,
  IN_ONLYDIR,
  IN_Q_OVERFLOW,
  IN_UNMOUNT,
  Inotify,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Directory } from './directory.ts';
import { RecentChanges } from './recent-changes.ts';

/** Gets the events of one directory, and each overflow of the kernel's queue (IN_Q_OVERFLOW). */
export interface Subscriber {
  onEvent(event: InotifyEvent): void;
}

/** After how long the handling of events lets the event loop go on, in milliseconds. */
const SLICE_MS = 8;
/** How many watches each turn of the event loop releases at once. The rest follows in slices. */
const RELEASED_AT_ONCE = 64;
/** How long a slice of releases may take, in milliseconds. */
const RELEASE_MS = 4;
const CALLS_BETWEEN_CLOCK_READS = 64;
/** After how long a mark is tried again at the limit of watches, in milliseconds. */
const RETRY_MS = 10;
/** The most callbacks of `settled` that share a mark. */
const SETTLED_AT_ONCE = 1000;

/** Owns the daemon's only inotify instance. All subscribers of a directory share one kernel watch. */
export class KernelWatches implements Disposable {
  readonly recentChanges = new RecentChanges();
  #inotify: Inotify | null = null;
  readonly #subscribers = new Map<number, Set<Subscriber>>();
  readonly #marks = new Map<number, () => void>();
  readonly #slices: (() => void)[] = [];
  readonly #unsettled: (() => void)[] = [];
  /** Directories that have left their trees, and still have watches. */
  readonly #left: Directory[] = [];
  /** How many watches may still be released in this turn of the event loop. */
  #releasable = RELEASED_AT_ONCE;
  #isSettling = false;
  readonly #onMountsChanged: () => void;
  #events: Generator<InotifyEvent, void> | null = null;
  #isWorking = false;
  #isDisposed = false;

  /** `onMountsChanged` is called after mounts were made, removed or moved, as long as anything is watched. */
  constructor(onMountsChanged: () => void = () => {}) {
    this.#onMountsChanged = onMountsChanged;
  }

  get size(): number {
    return this.#subscribers.size;
  }

  /**
   * Watches the directory at `path`; returns the watch descriptor. Errors name the directory `shown`. Throws
   * `resource_exhausted` at the kernel's limits, and inotify_add_watch(2)'s errors.
   */
  subscribe(path: BytePath, mask: number, subscriber: Subscriber, shown = path): number {
    const descriptor = this.#open().add(path, mask | IN_ONLYDIR | IN_DONT_FOLLOW, shown);
    const subscribers = this.#subscribers.get(descriptor);
    if (subscribers) subscribers.add(subscriber);
    else this.#subscribers.set(descriptor, new Set([subscriber]));
    return descriptor;
  }

  unsubscribe(descriptor: number, subscriber: Subscriber): void {
    const subscribers = this.#subscribers.get(descriptor);
    if (!subscribers?.delete(subscriber) || subscribers.size > 0) return;
    this.#subscribers.delete(descriptor);
    if (!this.#isDisposed) this.#inotify?.remove(descriptor);
  }

  /** Removes the watch of a directory. Those of the directories below it stay. */
  release(directory: Directory): void {
    const { descriptor } = directory;
    if (descriptor === null) return;
    directory.descriptor = null;
    this.unsubscribe(descriptor, directory);
  }

  /** Removes the watches of a directory and of all directories below it, some of them in later turns of the event loop. */
  releaseTree(directory: Directory): void {
    this.#left.push(directory);
    if (this.#releasable === RELEASED_AT_ONCE) void this.#releaseMoreLater();
    this.#releaseSome();
  }

  /** Whether watches of `releaseTree` are still to be removed. */
  get isReleasing(): boolean {
    return this.#left.length > 0;
  }

  /** Returns whether the kernel watch of a directory has other subscribers. */
  isShared({ descriptor }: Directory): boolean {
    return descriptor !== null && (this.#subscribers.get(descriptor)?.size ?? 0) > 1;
  }

  /** Returns whether the directory at `path` has this watch descriptor. */
  isWatch(descriptor: number, path: BytePath): boolean {
    try {
      const inotify = this.#open();
      const found = inotify.identify(path);
      // The call above has added a watch that nobody needs.
      if (!this.#subscribers.has(found)) inotify.remove(found);
      return found === descriptor;
    } catch {
      return false;
    }
  }

  /** Calls back once, when all events that have occurred so far were handed out or lost. */
  whenPassed(callback: () => void): void {
    if (this.#isDisposed) return;
    try {
      this.#marks.set(this.#open().mark(), callback);
    } catch (error) {
      if (!(error instanceof EnvdError)) throw error;
      // Another process has taken the last free watch.
      setTimeout(() => this.whenPassed(callback), RETRY_MS);
    }
  }

  /** Resolves after that. Before `then` returns, no later event is handed out. */
  async passed(then: () => void): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.whenPassed(() => {
      then();
      resolve();
    });
    await promise;
  }

  /** Does the same for callers of which there may be many: one mark serves up to a thousand of them. */
  settled(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#unsettled.push(resolve);
    this.#settle();
    return promise;
  }

  /** Resolves, in a turn of its own, when all events that were read from the kernel have been handed out. */
  async drained(): Promise<void> {
    do await this.turn();
    while (this.#isWorking);
  }

  /** Resolves in a turn of the event loop that no other caller of this gets, after those who wait already. */
  turn(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (this.#slices.push(resolve) === 1) setImmediate(() => this.#startSlice());
    return promise;
  }

  [Symbol.dispose](): void {
    this.#isDisposed = true;
    this.#events = null;
    this.#inotify?.[Symbol.dispose]();
    this.#inotify = null;
  }

  #open(): Inotify {
    if (this.#isDisposed) throw new EnvdError('unavailable', 'cannot watch: the daemon is stopping');
    this.#inotify ??= new Inotify(() => this.#work());
    return this.#inotify;
  }

  #settle(): void {
    if (this.#isSettling || this.#unsettled.length === 0) return;
    this.#isSettling = true;
    const callbacks = this.#unsettled.splice(0, SETTLED_AT_ONCE);
    this.whenPassed(() => {
      this.#isSettling = false;
      for (const callback of callbacks) callback();
      this.#settle();
    });
  }

  /** Hands out the events that were read from the kernel, in slices. */
  #work(): void {
    this.#isWorking = true;
    const deadline = monotonicMs() + SLICE_MS;
    for (let calls = 0; !this.#isDisposed; calls++) {
      this.#events ??= this.#takeEvents();
      if (!this.#events) break;
      const event = this.#events.next().value;
      if (event) calls += this.#handOut(event);
      else this.#events = null;
      if (calls < CALLS_BETWEEN_CLOCK_READS) continue;
      calls = 0;
      if (monotonicMs() < deadline) continue;
      setImmediate(() => this.#work());
      return;
    }
    this.#isWorking = false;
  }

  #takeEvents(): Generator<InotifyEvent, void> | null {
    const batch = this.#inotify?.take();
    return batch ? decodeEvents(batch) : null;
  }

  /** Hands out an event; returns the number of its subscribers. */
  #handOut(event: InotifyEvent): number {
    const subscribers = this.#subscribers.get(event.descriptor);
    if (subscribers) {
      if (event.mask & IN_IGNORED) this.#subscribers.delete(event.descriptor);
      for (const subscriber of subscribers) subscriber.onEvent(event);
      this.recentChanges.note(event);
    } else if (event.mask & IN_Q_OVERFLOW) {
      this.#overflowed(event);
    } else if (event.mask & IN_UNMOUNT) {
      this.#onMountsChanged();
    } else {
      const passed = this.#marks.get(event.descriptor);
      this.#marks.delete(event.descriptor);
      passed?.();
    }
    return subscribers?.size ?? 0;
  }

  /** Tells all subscribers, and completes all marks, because their events may be among those that were lost. */
  #overflowed(event: InotifyEvent): void {
    const passed = [...this.#marks.values()];
    this.#marks.clear();
    // The sets are copied, because subscribers set up new trees, which subscribe to the same watches.
    const subscribers = Array.from(this.#subscribers.values(), (each) => [...each]).flat();
    for (const subscriber of subscribers) subscriber.onEvent(event);
    for (const callback of passed) callback();
  }

  #startSlice(): void {
    this.#slices.shift()?.();
    if (this.#slices.length > 0) setImmediate(() => this.#startSlice());
  }

  async #releaseMoreLater(): Promise<void> {
    do {
      await this.turn();
      const deadline = monotonicMs() + RELEASE_MS;
      do {
        this.#releasable = RELEASED_AT_ONCE;
        this.#releaseSome();
      } while (this.#left.length > 0 && monotonicMs() < deadline);
    } while (this.#releasable < RELEASED_AT_ONCE);
  }

  #releaseSome(): void {
    for (; this.#releasable > 0; this.#releasable--) {
      const directory = this.#left.pop();
      if (!directory) return;
      for (const child of directory.children.values()) this.#left.push(child);
      this.release(directory);
    }
  }
}
