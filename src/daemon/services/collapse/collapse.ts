import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { ExclusiveLock } from '../../../base/exclusion.ts';
import { Durations } from '../../../base/tally.ts';
import { type CollapseStatistics, native } from '../../os/native.ts';
import { exposeCollector } from '../../os/self.ts';

export type { CollapseStatistics } from '../../os/native.ts';

/** Uses the daemon as its first caller after a resume will. */
export type Rehearsal = (signal: AbortSignal) => Promise<void>;

/** Makes the daemon's memory small and dense before a pause, and what answers ready, so that a resume touches few frames. */
export class Collapser {
  readonly durations = new Durations();
  readonly #lock: ExclusiveLock;
  readonly #forget: () => void;
  #collectGarbage: (() => void) | null = null;

  /**
   * `lock`: for one operation before a pause at a time. `forget`: lets go of what the daemon keeps of former answers,
   * so that it is garbage.
   */
  constructor(lock = new ExclusiveLock(), forget: () => void = () => {}) {
    this.#lock = lock;
    this.#forget = forget;
  }

  /**
   * Collects garbage, has `rehearse` make anew what the next answer needs of what that threw away, trims the heap, then
   * collapses it into huge pages in a pool thread. The order of the members is that of the wire; `elapsedMs` is whole
   * and covers all of it.
   * Throws `unavailable` while another operation holds the lock, `aborted` when `signal` ends it.
   */
  async collapse(signal: AbortSignal, rehearse: Rehearsal = async () => {}): Promise<CollapseStatistics> {
    using _ = this.#lock.acquire('collapse');
    return await this.durations.measure(() => this.#collapse(signal, rehearse));
  }

  async #collapse(signal: AbortSignal, rehearse: Rehearsal): Promise<CollapseStatistics> {
    const started = performance.now();
    this.#forget();
    this.#collectGarbage ??= exposeCollector();
    this.#collectGarbage();
    await rehearse(signal);
    native.trimHeap();
    const { regions, chunks, collapsed, alreadyHuge, skipped } = await collapseHeap(signal);
    const elapsedMs = Math.round(performance.now() - started);
    return { regions, chunks, collapsed, alreadyHuge, skipped, elapsedMs };
  }
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
