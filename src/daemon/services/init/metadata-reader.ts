import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError } from '../../../base/errors.ts';
import type { Metadata } from './metadata-client.ts';

/** How long a caller waits for a reading, and the background for an answer, in milliseconds. @internal */
export const READ_LIMIT_MS = 1000;
/** Between readings in the background; the requests that depend on one make their own. */
const INTERVAL_MS = 30_000;
/** Between attempts of a caller that waits. */
const RETRY_MS = 50;
/** Between attempts in the background: twice as long each time, up to the second number. */
const BACKGROUND_RETRY_MS = [100, 5000] as const;

export interface MetadataReaderOptions {
  read(signal: AbortSignal): Promise<Metadata>;
  /** Told every reading before a caller gets it. */
  onReading(metadata: Metadata): Promise<void>;
  /** Told why readings in the background fail, once until the next one that does not. */
  onFailure(error: unknown): void;
}

/** Reads the metadata in the background from the start on, and again for whoever needs to know what it is now. */
export class MetadataReader implements Disposable {
  readonly #options: MetadataReaderOptions;
  readonly #stop = new AbortController();
  #latest: { readonly metadata: Metadata; readonly begunNs: bigint } | null = null;

  constructor(options: MetadataReaderOptions) {
    this.#options = options;
    void this.#readOn();
  }

  /**
   * A reading that was begun no longer than `ageNs` ago. Throws `unavailable` when there is none within a second,
   * and what `onReading` throws.
   */
  async fresh(ageNs: bigint): Promise<Metadata> {
    const oldestNs = process.hrtime.bigint() - ageNs;
    if (this.#latest && this.#latest.begunNs >= oldestNs) return this.#latest.metadata;
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(READ_LIMIT_MS)]);
    let failure: unknown = null;
    while (!limit.aborted) {
      try {
        return await this.#read(limit);
      } catch (error) {
        if (!limit.aborted) failure = error;
      }
      await delay(RETRY_MS, undefined, { signal: limit }).catch(() => {});
    }
    throw failure ?? new EnvdError('unavailable', 'metadata service did not answer in time');
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
  }

  async #read(signal: AbortSignal): Promise<Metadata> {
    const begunNs = process.hrtime.bigint();
    const metadata = await this.#options.read(signal);
    this.#latest = { metadata, begunNs };
    await this.#options.onReading(metadata);
    return metadata;
  }

  async #readOn(): Promise<void> {
    const { signal } = this.#stop;
    const [shortest, longest] = BACKGROUND_RETRY_MS;
    let retry: number = shortest;
    let told = false;
    while (!signal.aborted) {
      try {
        await this.#read(AbortSignal.any([signal, AbortSignal.timeout(READ_LIMIT_MS)]));
        [retry, told] = [shortest, false];
      } catch (error) {
        if (!told && !signal.aborted) this.#options.onFailure(error);
        told = true;
      }
      await delay(told ? retry : INTERVAL_MS, undefined, { signal, ref: false }).catch(() => {});
      if (told) retry = Math.min(retry * 2, longest);
    }
  }
}
