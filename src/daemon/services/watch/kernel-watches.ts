import { EnvdError } from '../../../base/errors.ts';
import type { BytePath } from '../../os/byte-path.ts';
import {
  decodeEvents,
  IN_DONT_FOLLOW,
  IN_IGNORED,
  IN_MASK_ADD,
  IN_MOVE_SELF,
  IN_MOVED_FROM,
  IN_ONLYDIR,
  IN_Q_OVERFLOW,
  Inotify,
  type InotifyEvent,
} from '../../os/inotify.ts';

/** Whoever wants the events of one directory. */
export interface Subscriber {
  onEvent(event: InotifyEvent): void;
}

/** The event loop goes on with other things after so many ms of events. */
const SLICE_MS = 8;
const EVENTS_BETWEEN_CLOCK_READS = 64;
const RETRY_MS = 10;

/** Bits that change nothing for a directory that is watched already. */
const IDENTIFY = IN_MASK_ADD | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW;

/** The daemon's one inotify instance: one kernel watch a directory, shared by all who subscribe to it. */
export class KernelWatches implements Disposable {
  #inotify: Inotify | null = null;
  /** By watch descriptor. */
  readonly #subscribers = new Map<number, Set<Subscriber>>();
  readonly #marks = new Map<number, () => void>();
  readonly #slices: (() => void)[] = [];
  readonly #overflowListeners = new Set<() => void>();
  readonly #whenDrained: (() => void)[] = [];
  #events: Generator<InotifyEvent, void> | null = null;
  /** Whether there is more to hand out. */
  #working = false;
  /** Whether the last event handed out was the first half of a move. */
  #halfMoved = false;
  #disposed = false;

  /** Kernel watches held for subscribers. */
  get size(): number {
    return this.#subscribers.size;
  }

  /** Watches the directory at `path`; returns its descriptor. Throws `resource_exhausted` at the kernel's limits. */
  subscribe(path: BytePath, mask: number, subscriber: Subscriber): number {
    const descriptor = this.#open().add(path, mask | IN_ONLYDIR | IN_DONT_FOLLOW);
    const subscribers = this.#subscribers.get(descriptor);
    if (subscribers) subscribers.add(subscriber);
    else this.#subscribers.set(descriptor, new Set([subscriber]));
    return descriptor;
  }

  unsubscribe(descriptor: number, subscriber: Subscriber): void {
    const subscribers = this.#subscribers.get(descriptor);
    if (!subscribers?.delete(subscriber) || subscribers.size > 0) return;
    this.#subscribers.delete(descriptor);
    if (!this.#disposed) this.#inotify?.remove(descriptor);
  }

  /** Whether a kernel watch has more subscribers than one. */
  isShared(descriptor: number): boolean {
    return (this.#subscribers.get(descriptor)?.size ?? 0) > 1;
  }

  /** The descriptor of the directory that is at `path` now; null when nobody watches it. */
  identify(path: BytePath): number | null {
    const inotify = this.#open();
    const descriptor = inotify.add(path, IDENTIFY);
    if (this.#subscribers.has(descriptor)) return descriptor;
    inotify.remove(descriptor);
    return null;
  }

  /** Calls back once, when everything that has happened until now has been handed out (or lost). */
  whenPassed(callback: () => void): void {
    if (this.#disposed) return;
    try {
      this.#marks.set(this.#open().mark(), callback);
    } catch (error) {
      if (!(error instanceof EnvdError)) throw error;
      // At the limit of watches another process was faster: a later mark does as well.
      setTimeout(() => this.whenPassed(callback), RETRY_MS);
    }
  }

  /** Calls back once, when everything that was read from the kernel has been handed out. */
  whenDrained(callback: () => void): void {
    if (this.#working) this.#whenDrained.push(callback);
    else this.inTurn(callback);
  }

  /** Runs `slice` in a turn of the event loop of its own, one after the other for all watches. */
  inTurn(slice: () => void): void {
    if (this.#slices.push(slice) === 1) setImmediate(() => this.#runSlice());
  }

  /** Calls back whenever the kernel's queue has overflowed; returns what ends that. */
  onOverflow(listener: () => void): () => void {
    this.#overflowListeners.add(listener);
    return () => this.#overflowListeners.delete(listener);
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    this.#events = null;
    this.#inotify?.[Symbol.dispose]();
    this.#inotify = null;
  }

  #open(): Inotify {
    if (this.#disposed) throw new EnvdError('unavailable', 'the watcher is closed');
    this.#inotify ??= new Inotify(() => this.#work());
    return this.#inotify;
  }

  /** Hands out what was read, in slices. */
  #work(): void {
    this.#working = true;
    const deadline = performance.now() + SLICE_MS;
    for (let count = 1; !this.#disposed; count++) {
      this.#events ??= this.#takeEvents();
      if (!this.#events) break;
      const event = this.#events.next().value;
      if (event) this.#handOut(event);
      else this.#events = null;
      if (count % EVENTS_BETWEEN_CLOCK_READS === 0 && !this.#halfMoved && performance.now() > deadline) {
        setImmediate(() => this.#work());
        return;
      }
    }
    this.#rest();
  }

  #takeEvents(): Generator<InotifyEvent, void> | null {
    const batch = this.#inotify?.take();
    return batch ? decodeEvents(batch) : null;
  }

  #handOut(event: InotifyEvent): void {
    this.#halfMoved = (event.mask & IN_MOVED_FROM) !== 0;
    const subscribers = this.#subscribers.get(event.descriptor);
    if (subscribers) {
      if (event.mask & IN_IGNORED) this.#subscribers.delete(event.descriptor);
      for (const subscriber of subscribers) subscriber.onEvent(event);
    } else if (event.mask & IN_Q_OVERFLOW) {
      this.#overflowed();
    } else {
      const passed = this.#marks.get(event.descriptor);
      this.#marks.delete(event.descriptor);
      passed?.();
    }
  }

  /** Marks may be among what was lost. */
  #overflowed(): void {
    const passed = [...this.#marks.values()];
    this.#marks.clear();
    for (const listener of this.#overflowListeners) listener();
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

  /** Everything that was read is handed out; unless a move has been told by half: its other half is coming. */
  #rest(): void {
    if (this.#halfMoved) {
      this.#halfMoved = false;
      setImmediate(() => this.#work());
    } else {
      this.#drained();
    }
  }

  #drained(): void {
    this.#working = false;
    for (const callback of this.#whenDrained.splice(0)) if (!this.#disposed) callback();
  }
}
