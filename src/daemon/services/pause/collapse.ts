import { onAbort } from '../../../base/abort.ts';
import { ExclusiveLock } from '../../../base/exclusion.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { debug } from '../../../base/program/debug.ts';
import { Durations } from '../../../base/tally.ts';
import { readIfPresent } from '../../linux/files/text-file.ts';
import { native, type CollapseStatistics as Windows } from '../../linux/system/native.ts';
import { collectGarbage } from '../../linux/system/self.ts';

export interface CollapseStatistics extends Windows {
  /** The duration of all steps, in whole milliseconds. */
  readonly elapsedMs: number;
}

/** Compacts the daemon's memory before a pause, so that a resume touches few page frames. */
export class Collapser {
  readonly durations = new Durations();
  readonly #lock: ExclusiveLock;
  readonly #dropCaches: () => void;

  /**
   * `lock` excludes other operations before a pause. `dropCaches` lets go of what is cached of earlier requests, so that it
   * can be collected.
   */
  constructor(lock = new ExclusiveLock(), dropCaches: () => void = () => {}) {
    this.#lock = lock;
    this.#dropCaches = dropCaches;
  }

  /**
   * Collects garbage once, returns free memory to the kernel, and collapses the rest into huge pages in a pool thread. The
   * order of the result's members is that of the wire. Throws `unavailable` while another operation holds the lock, and the
   * reason of `signal`.
   */
  async collapse(signal: AbortSignal): Promise<CollapseStatistics> {
    using _ = this.#lock.acquire('collapse');
    return await this.durations.measure(() => this.#collapse(signal));
  }

  /**
   * Collects garbage and returns free memory to the kernel, which blocks the event loop for some 20 ms. `withCode` also drops
   * compiled code, which later calls compile again. Does nothing while an operation holds the lock.
   */
  trim(withCode: boolean): void {
    if (this.#lock.isHeld) return;
    this.#dropCaches();
    collectGarbage(withCode ? 'last-resort' : 'regular');
    native.trimHeap();
    debug('collapse', 'memory trimmed', () => ({ withCode }));
  }

  async #collapse(signal: AbortSignal): Promise<CollapseStatistics> {
    const started = monotonicMs();
    this.#dropCaches();
    // Compiled code stays, because the first calls after the resume are most likely the same as the last ones before
    // it.
    collectGarbage('regular');
    native.trimHeap();
    const { regions, chunks, collapsed, alreadyHuge, skipped } = await collapseHeap(signal);
    const elapsedMs = Math.round(monotonicMs() - started);
    const statistics = { regions, chunks, collapsed, alreadyHuge, skipped, elapsedMs };
    debug('collapse', 'memory collapsed', () => statistics);
    return statistics;
  }
}

/**
 * Returns whether the guest wants huge pages, a setting that the kernel ignores in a collapse. Source:
 * Documentation/admin-guide/mm/transhuge.rst.
 */
async function isAllowed(): Promise<boolean> {
  const setting = await readIfPresent('/sys/kernel/mm/transparent_hugepage/enabled');
  return setting !== null && !setting.includes('[never]');
}

async function collapseHeap(signal: AbortSignal): Promise<Windows> {
  const cancelled = Buffer.from(new SharedArrayBuffer(1));
  if (!(await isAllowed())) cancelled[0] = 1;
  const removeListener = onAbort(signal, () => Atomics.store(cancelled, 0, 1));
  try {
    const statistics = await native.collapseHeap(cancelled);
    signal.throwIfAborted();
    return statistics;
  } finally {
    removeListener();
  }
}
