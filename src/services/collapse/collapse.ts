import { onAbort } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';
import { ExclusiveLock } from '../../base/exclusive-lock.ts';
import { Durations } from '../../base/tally.ts';
import { type CollapseStatistics, native } from '../../os/native.ts';
import { collectGarbage } from './garbage.ts';

export type { CollapseStatistics } from '../../os/native.ts';

/** Makes the daemon's memory small and dense before a pause, so that a resume touches few frames. */
export class Collapser {
  readonly durations = new Durations();
  readonly #lock: ExclusiveLock;

  /** `lock`: for one operation before a pause at a time. */
  constructor(lock = new ExclusiveLock()) {
    this.#lock = lock;
  }

  /**
   * Collects garbage, trims the heap, then collapses it into huge pages in a pool thread. The order of the members
   * is that of the wire; `elapsedMs` is whole and covers all three.
   * Throws `unavailable` while another operation holds the lock, `aborted` when `signal` ends it.
   */
  async collapse(signal: AbortSignal): Promise<CollapseStatistics> {
    using _ = this.#lock.acquire('collapse');
    return await this.durations.measure(() => collapse(signal));
  }
}

async function collapse(signal: AbortSignal): Promise<CollapseStatistics> {
  const started = performance.now();
  collectGarbage();
  native.trimHeap();
  const { regions, chunks, collapsed, alreadyHuge, skipped } = await collapseHeap(signal);
  const elapsedMs = Math.round(performance.now() - started);
  return { regions, chunks, collapsed, alreadyHuge, skipped, elapsedMs };
}

async function collapseHeap(signal: AbortSignal): Promise<CollapseStatistics> {
  const job = native.collapseHeap();
  const forget = onAbort(signal, () => job.cancel());
  try {
    const statistics = await job.done;
    if (signal.aborted) throw new EnvdError('aborted', 'collapse was cancelled', { cause: signal.reason });
    return statistics;
  } finally {
    forget();
  }
}
