import { EnvdError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import {
  decodeEvents,
  IN_DONT_FOLLOW,
  IN_IGNORED,
  IN_MASK_ADD,
  IN_MOVE_SELF,
  IN_ONLYDIR,
  IN_Q_OVERFLOW,
  IN_UNMOUNT,
  Inotify,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { RecentChanges } from './recent-changes.ts';
import { Releases, type WatchedDirectory } from './releases.ts';

/** Receives the events of one directory, and each overflow of the kernel's queue (IN_Q_OVERFLOW). */
export interface Subscriber {
  onEvent(event: InotifyEvent): void;
}

/** Time after which event handling yields to the event loop, in milliseconds. */
const SLICE_MS = 8;
const CALLS_BETWEEN_CLOCK_READS = 64;
const RETRY_MS = 10;
/** Maximum number of callbacks for one mark of `whenSettled`. */
const SETTLED_AT_ONCE = 1000;

/** A mask that does not change an existing watch. */
const IDENTIFY = IN_MASK_ADD | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW;

/** The daemon's only inotify instance: one kernel watch per directory, shared by all its subscribers. */
export class KernelWatches implements Disposable {
  /** Directories that have left their trees. */
  readonly releases = new Releases(
    (slice) => this.inTurn(slice),
    (directory) => this.release(directory),
  );
  readonly recentChanges = new RecentChanges();
  #inotify: Inotify | null = null;
  /** By watch descriptor. */
  readonly #subscribers = new Map<number, Set<Subscriber>>();
  readonly #marks = new Map<number, () => void>();
  readonly #slices: (() => void)[] = [];
  readonly #unsettled: (() => void)[] = [];
  #isSettling = false;
  readonly #onMountsChanged: () => void;
  #events: Generator<InotifyEvent, void> | null = null;
  /** Whether a batch is being handed out. */
  #isWorking = false;
  #isDisposed = false;

  /** `onMountsChanged` is called when mounts have been made, removed or moved, as long as anything is watched. */
  constructor(onMountsChanged: () => void = () => {}) {
    this.#onMountsChanged = onMountsChanged;
  }

  /** Number of kernel watches. */
  get size(): number {
    return this.#subscribers.size;
  }

  /**
   * Watches the directory at `path`, called `shown` in errors; returns its descriptor. Throws `resource_exhausted` at
   * the kernel's limits.
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

  /** Removes the watch of a directory, not those below. */
  release(directory: WatchedDirectory): void {
    const { descriptor } = directory;
    if (descriptor === null) return;
    directory.descriptor = null;
    this.unsubscribe(descriptor, directory);
  }

  /** Whether the kernel watch of a directory has other subscribers. */
  isShared({ descriptor }: WatchedDirectory): boolean {
    return descriptor !== null && (this.#subscribers.get(descriptor)?.size ?? 0) > 1;
  }

  /** Whether the directory at `path` has this watch descriptor. */
  isWatch(descriptor: number, path: BytePath): boolean {
    try {
      const inotify = this.#open();
      const found = inotify.add(path, IDENTIFY);
      // It was not watched before.
      if (!this.#subscribers.has(found)) inotify.remove(found);
      return found === descriptor;
    } catch {
      return false;
    }
  }

  /** Calls back once, when all events that have occurred so far have been handed out or lost. */
  whenPassed(callback: () => void): void {
    if (this.#isDisposed) return;
    try {
      this.#marks.set(this.#open().mark(), callback);
    } catch (error) {
      if (!(error instanceof EnvdError)) throw error;
      // Another process took the last free watch: try again later.
      setTimeout(() => this.whenPassed(callback), RETRY_MS);
    }
  }

  /** The same, for callers that may be many: one mark at a time serves up to a thousand of them. */
  whenSettled(callback: () => void): void {
    this.#unsettled.push(callback);
    this.#settle();
  }

  /** Calls back once, in its own turn, when all events read from the kernel have been handed out. */
  whenDrained(callback: () => void): void {
    const runIfDrained = () => (this.#isWorking ? this.inTurn(runIfDrained) : callback());
    this.inTurn(runIfDrained);
  }

  /** Runs `slice` in its own turn of the event loop; slices of all watches run one after another. */
  inTurn(slice: () => void): void {
    if (this.#slices.push(slice) === 1) setImmediate(() => this.#runSlice());
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

  /** Hands out the events read from the kernel, in slices. */
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

  /** Returns the number of subscribers. */
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

  /** Marks may be among the lost events. */
  #overflowed(event: InotifyEvent): void {
    const passed = [...this.#marks.values()];
    this.#marks.clear();
    // Copied, because trees that are set up anew subscribe to the same watches.
    const subscribers = Array.from(this.#subscribers.values(), (each) => [...each]).flat();
    for (const subscriber of subscribers) subscriber.onEvent(event);
    for (const callback of passed) callback();
  }

  #runSlice(): void {
    try {
      this.#slices[0]?.();
    } finally {
      this.#slices.shift();
      if (this.#slices.length > 0) setImmediate(() => this.#runSlice());
    }
  }
}
