import { EventEmitter } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { limited, onAbort, untilAborted } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { EvictingSemaphore, type PlaceRules } from '../../../base/evicting-semaphore.ts';
import { debug } from '../../../base/program/debug.ts';
import { Repeated } from '../../../base/repeated.ts';
import { NO_METADATA, type SandboxMetadata } from './metadata.ts';

const MOST_WAITING = 64;
/** The calls of `/init` that wait for something: for the metadata, or for a step that takes long. */
export const WAITING_CALLS: PlaceRules = {
  most: MOST_WAITING,
  dropped: () => new EnvdError('unavailable', `more than ${MOST_WAITING} calls are waiting: try again`),
};

/** How long a caller of `check` may wait, in milliseconds. */
const CHECK_LIMIT_MS = 1000;
/** The same while it is unknown whether there is a service. It is shorter, because the platform gives up after 50 ms. */
const UNKNOWN_LIMIT_MS = 25;
/** How long a result may decide calls that arrived after it, in nanoseconds. */
const RECENT_NS = 1_000_000_000n;
/**
 * After how long another read is started while calls wait, in milliseconds. A read that was under way at a pause gets no
 * response.
 */
const INTERVAL_MS = 50;
/** How long such a read may take, in milliseconds. One at a time may take longer, because the service may be slow. */
const READ_LIMIT_MS = 1000;
const LONG_READ_LIMIT_MS = 5000;
/** How often the metadata are read in the background, in milliseconds. */
const BACKGROUND_INTERVAL_MS = 30_000;
/**
 * The first and the longest pause after a background read that failed, in milliseconds. The pause doubles each time. It grows
 * to the interval above where there may be no service and none has answered.
 */
const FIRST_RETRY_MS = 100;
const LONGEST_RETRY_MS = 5000;

export interface MetadataReaderOptions {
  /** Whether there may be no service. If so, one that has never answered counts as none. */
  readonly isOptional: boolean;
  read(signal: AbortSignal): Promise<SandboxMetadata>;
  /** Called with each result. `check` returns only after it. */
  onRead(metadata: SandboxMetadata): Promise<void>;
  /** Called with the first error of a series of failed background reads. */
  onFailure(error: unknown): void;
}

interface Reading {
  readonly metadata: SandboxMetadata;
  readonly startedNs: bigint;
  readonly endedNs: bigint;
}

interface Waiting {
  onReading(reading: Reading): void;
  onFailure(error: unknown): void;
}

/**
 * Reads the metadata at intervals, and on demand for callers that need a current value, who share the reads. Emits `read`
 * with each result.
 */
export class MetadataReader extends EventEmitter<{ read: [SandboxMetadata] }> implements Disposable {
  readonly #options: MetadataReaderOptions;
  readonly #stop = new AbortController();
  readonly #places = new EvictingSemaphore(WAITING_CALLS);
  readonly #waiting = new Set<Waiting>();
  #latest: Reading | null = null;
  /** The results of reads that were started before this time are ignored. */
  #oldestNs = 0n;
  #hasAnswered = false;
  #isReadingLong = false;
  /** Whether `#drive` is running. */
  #isDriven = false;
  readonly #background: Repeated;
  /** The number of background reads that have failed in a row. */
  #failures = 0;

  /** `firstMs` is when the first background read begins, in milliseconds; null makes it begin now. */
  constructor(options: MetadataReaderOptions, firstMs: number | null = null) {
    super();
    this.#options = options;
    this.#background = new Repeated(firstMs, () => this.#readInBackground());
  }

  /**
   * Returns whether `accepts` is true of the current metadata. If it is true of metadata that were read during the last
   * second, they count: otherwise callers with less patience than the service needs would never succeed. A refusal must come
   * from metadata that were read after the call. Throws `unavailable` when that takes longer than 1 s or too many newer calls
   * wait, the reason of `gone`, and errors of `onRead`.
   */
  async check(accepts: (metadata: SandboxMetadata) => boolean, gone: AbortSignal): Promise<boolean> {
    const arrivedNs = process.hrtime.bigint();
    const latest = this.#latest;
    if (latest && arrivedNs - latest.endedNs <= RECENT_NS && accepts(latest.metadata)) return true;
    using place = this.#places.take();
    const { promise, resolve, reject } = Promise.withResolvers<boolean>();
    const isUnknown = this.#isUnknown();
    let failure: unknown = null;
    const onFailure = (error: unknown) => {
      failure = error;
      if (this.#isUnknown()) resolve(accepts(NO_METADATA));
    };
    const waiting: Waiting = {
      onReading({ metadata, startedNs }) {
        if (accepts(metadata)) resolve(true);
        else if (startedNs >= arrivedNs) resolve(false);
      },
      onFailure,
    };
    const onLimit = () => (isUnknown ? onFailure(null) : reject(failure ?? silent()));
    const limit = setTimeout(onLimit, isUnknown ? UNKNOWN_LIMIT_MS : CHECK_LIMIT_MS);
    const stopListening = onAbort(this.#stop.signal, () => reject(silent()));
    this.#waiting.add(waiting);
    void this.#drive();
    try {
      return await untilAborted(promise, AbortSignal.any([gone, place.signal]));
    } finally {
      clearTimeout(limit);
      stopListening();
      this.#waiting.delete(waiting);
    }
  }

  /** Starts a read in the background, because the metadata may have changed. */
  refresh(): void {
    void this.#read(READ_LIMIT_MS).catch(() => {});
  }

  /** Call it when a pause begins. Earlier results no longer decide calls, and the next background read is postponed. */
  forget(): void {
    this.#background.postpone();
    this.#latest = null;
    this.#oldestNs = process.hrtime.bigint();
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    this.#background[Symbol.dispose]();
  }

  #isUnknown(): boolean {
    return this.#options.isOptional && !this.#hasAnswered;
  }

  /** Starts a read now, and further ones at intervals while calls wait. */
  async #drive(): Promise<void> {
    if (this.#isDriven) return;
    this.#isDriven = true;
    while (this.#waiting.size > 0 && !this.#stop.signal.aborted) {
      void this.#readForWaiting();
      await delay(INTERVAL_MS, undefined, { signal: this.#stop.signal }).catch(() => {});
    }
    this.#isDriven = false;
  }

  async #readForWaiting(): Promise<void> {
    const isLong = !this.#isReadingLong;
    if (isLong) this.#isReadingLong = true;
    try {
      await this.#read(isLong ? LONG_READ_LIMIT_MS : READ_LIMIT_MS);
    } catch (error) {
      // A read that has taken too long says nothing about the service; another one may still succeed.
      if (!isTimeout(error)) for (const { onFailure } of this.#waiting) onFailure(error);
    } finally {
      if (isLong) this.#isReadingLong = false;
    }
  }

  /**
   * Reads the metadata. Ignores the result if a read that was started later has a result, or if `forget` was called
   * meanwhile.
   */
  async #read(limitMs: number): Promise<void> {
    const startedNs = process.hrtime.bigint();
    const metadata = await limited(limitMs, this.#stop.signal, this.#options.read);
    if (startedNs < (this.#latest?.startedNs ?? this.#oldestNs)) return;
    const reading = { metadata, startedNs, endedNs: process.hrtime.bigint() };
    this.#latest = reading;
    this.#hasAnswered = true;
    this.emit('read', metadata);
    await this.#options.onRead(metadata);
    debug('metadata', 'metadata read');
    for (const { onReading } of this.#waiting) onReading(reading);
  }

  /** Reads in the background; returns after how long to read again, in milliseconds. */
  async #readInBackground(): Promise<number> {
    try {
      await this.#read(CHECK_LIMIT_MS);
      this.#failures = 0;
      return BACKGROUND_INTERVAL_MS;
    } catch (error) {
      if (this.#failures === 0 && !this.#stop.signal.aborted) this.#options.onFailure(error);
      const longest = this.#isUnknown() ? BACKGROUND_INTERVAL_MS : LONGEST_RETRY_MS;
      return Math.min(FIRST_RETRY_MS * 2 ** this.#failures++, longest);
    }
  }
}

function silent(): EnvdError {
  return new EnvdError('unavailable', `metadata service did not answer within ${CHECK_LIMIT_MS} ms`);
}

function isTimeout(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'TimeoutError';
}
