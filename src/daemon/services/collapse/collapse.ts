import { onAbort } from '../../../base/abort.ts';
import { debug } from '../../../base/debug.ts';
import { ExclusiveLock } from '../../../base/exclusion.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { Durations } from '../../../base/tally.ts';
import { native, type CollapseStatistics as Windows } from '../../os/native.ts';
import { type Collector, exposeCollector, optimiseHotCode } from '../../os/self.ts';

export interface CollapseStatistics extends Windows {
  /** The duration of all steps, an integer. */
  readonly elapsedMs: number;
}

/**
 * Calls the daemon's API so that code and caches for the first request after a resume exist before the pause. `isAgain`: only to fill the
 * caches that a collection has emptied since.
 */
export type WarmUp = (signal: AbortSignal, isAgain: boolean) => Promise<void>;

/** Compacts the daemon's memory before a pause, so that a resume touches few page frames. */
export class Collapser {
  readonly durations = new Durations();
  readonly #lock: ExclusiveLock;
  readonly #dropCaches: () => void;
  #collector: Collector | null = null;
  #optimises = true;

  /** Called when a collapse has ended. */
  readonly onCollapsed: (() => void)[] = [];

  /**
   * `lock` excludes other operations before a pause. `dropCaches` releases what is cached of previous requests, so that
   * it can be collected.
   */
  constructor(lock = new ExclusiveLock(), dropCaches: () => void = () => {}) {
    this.#lock = lock;
    this.#dropCaches = dropCaches;
  }

  /**
   * Collects garbage, calls `warmUp` to rebuild the code and caches that were collected but the next request needs,
   * trims the heap, then collapses it into huge pages in a pool thread. The order of the members is that of the wire.
   * Throws `unavailable` while another operation holds the lock, `aborted` when `signal` aborts.
   */
  async collapse(signal: AbortSignal, warmUp: WarmUp = async () => {}): Promise<CollapseStatistics> {
    using _ = this.#lock.acquire('collapse');
    try {
      return await this.durations.measure(() => this.#collapse(signal, warmUp));
    } finally {
      for (const listener of this.onCollapsed) listener();
    }
  }

  /**
   * Collects garbage and returns free memory to the kernel; takes some 20 ms. Not while an operation holds the lock.
   * @param withCode also drops compiled code, which the next calls compile again
   */
  trim(withCode: boolean): void {
    if (this.#lock.isHeld) return;
    this.#dropCaches();
    this.#collector ??= exposeCollector();
    if (withCode) this.#collector.everything();
    else this.#collector.garbage();
    native.trimHeap();
    debug('collapse', 'trimmed', () => ({ withCode }));
  }

  /**
   * Lets V8 optimise code again, which a collapse has ended because it costs more frames than the first calls after a
   * resume. Not while an operation holds the lock: the work of a collapse is no reason.
   */
  optimiseAgain(): void {
    if (!this.#lock.isHeld) this.#optimise(true);
  }

  #optimise(wanted: boolean): void {
    if (wanted !== this.#optimises) optimiseHotCode(wanted);
    this.#optimises = wanted;
  }

  async #collapse(signal: AbortSignal, warmUp: WarmUp): Promise<CollapseStatistics> {
    const started = monotonicMs();
    this.#dropCaches();
    this.#collector ??= exposeCollector();
    this.#optimise(false);
    this.#collector.everything();
    await warmUp(signal, false);
    // Otherwise V8 would mark the whole heap soon after the resume, since what the warm-up has left counts as growth.
    this.#collector.garbage();
    // That has dropped the hidden classes of which there was no object, and what V8 knew of them.
    await warmUp(signal, true);
    this.#collector.young();
    native.trimHeap();
    const { regions, chunks, collapsed, alreadyHuge, skipped } = await collapseHeap(signal);
    const elapsedMs = Math.round(monotonicMs() - started);
    const statistics = { regions, chunks, collapsed, alreadyHuge, skipped, elapsedMs };
    debug('collapse', 'collapsed', () => statistics);
    return statistics;
  }
}

async function collapseHeap(signal: AbortSignal): Promise<Windows> {
  const cancelled = Buffer.from(new SharedArrayBuffer(1));
  const removeListener = onAbort(signal, () => Atomics.store(cancelled, 0, 1));
  try {
    const statistics = await native.collapseHeap(cancelled);
    signal.throwIfAborted();
    return statistics;
  } finally {
    removeListener();
  }
}
