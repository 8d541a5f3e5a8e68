import { EnvdError } from './errors.ts';
import { monotonicMs } from './monotonic.ts';

/** A place that is taken. Dispose of it to give it back. */
export interface Place extends Disposable {
  /** Since when its holder has waited, by `monotonicMs`; null while the holder does not wait. */
  waitingSince: number | null;
  /** Aborts when another holder has got the place. */
  readonly signal: AbortSignal;
}

export interface PlaceRules {
  /** The number of places. */
  readonly most: number;
  /** Who has waited for less than this, in milliseconds, keeps his place. The default is 0. */
  readonly leastMs?: number;
  /** Says why a holder has lost his place, after `waitedMs` milliseconds. */
  dropped(waitedMs: number): Error;
  /** Says why no place is free. */
  readonly refusal?: string;
}

/**
 * Limits who does something at a time. When all places are taken, another holder gets the place of the one that has waited longest, so
 * that those who wait in vain cannot lock out one that would be served soon.
 */
export class EvictingSemaphore {
  readonly #rules: PlaceRules;
  readonly #taken = new Map<Place, AbortController>();

  constructor(rules: PlaceRules) {
    this.#rules = rules;
  }

  /** Takes a place for a holder who waits from now on. Throws `resource_exhausted` when everybody keeps his place. */
  take(): Place {
    if (this.#taken.size >= this.#rules.most) this.#dropOne();
    const controller = new AbortController();
    const { signal } = controller;
    const give = () => void this.#taken.delete(place);
    const place: Place = { waitingSince: monotonicMs(), signal, [Symbol.dispose]: give };
    this.#taken.set(place, controller);
    return place;
  }

  #dropOne(): void {
    const { leastMs = 0, refusal = 'all places are taken', dropped } = this.#rules;
    const now = monotonicMs();
    const waitedMs = ({ waitingSince }: Place) => (waitingSince === null ? -1 : now - waitingSince);
    const [[place, controller] = []] = [...this.#taken].sort(([a], [b]) => waitedMs(b) - waitedMs(a));
    const longestMs = place ? waitedMs(place) : -1;
    if (!place || longestMs < leastMs) throw new EnvdError('resource_exhausted', refusal);
    this.#taken.delete(place);
    controller?.abort(dropped(longestMs));
  }
}
