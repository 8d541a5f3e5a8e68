import { EventEmitter } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { limited, onAbort, untilAborted } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { debug } from '../../../base/program/debug.ts';
import { Repeated } from '../../../base/repeated.ts';
import { NO_METADATA, type SandboxMetadata } from './metadata.ts';
import { WaitingCalls } from './waiting-calls.ts';

/** Longest wait of a caller of `check`, in milliseconds. */
const CHECK_LIMIT_MS = 1000;
/** The limit while it is unknown whether there is a service, in milliseconds: the platform gives up after 50 ms. */
const UNKNOWN_LIMIT_MS = 25;
/** How long a result may decide calls that arrived after it, in nanoseconds. */
const RECENT_NS = 1_000_000_000n;
/** Interval of reads while calls wait, in milliseconds: one that was under way at a pause gets no response. */
const INTERVAL_MS = 50;
/** Limit of such a read, in milliseconds; one at a time is given longer, for a service that is slow. */
const READ_LIMIT_MS = 1000;
const LONG_READ_LIMIT_MS = 5000;
/** Interval of background reads, in milliseconds. */
const BACKGROUND_INTERVAL_MS = 30_000;
/**
 * First and longest interval of background reads after a failure, in milliseconds; doubles each time. Where there may be no
 * service, and none has answered, up to the interval above.
 */
const FIRST_RETRY_MS = 100;
const LONGEST_RETRY_MS = 5000;

export interface MetadataReaderOptions {
  /** Whether there may be no service: then one that has never answered counts as none. */
  readonly isOptional: boolean;
  read(signal: AbortSignal): Promise<SandboxMetadata>;
  /** Called with each result before `check` returns. */
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
 * Reads the metadata periodically, and on demand for callers that need a current value, who share the reads. Emits `read` with
 * each result.
 */
export class MetadataReader extends EventEmitter<{ read: [SandboxMetadata] }> implements Disposable {
  readonly #options: MetadataReaderOptions;
  readonly #stop = new AbortController();
  readonly #places = new WaitingCalls();
  readonly #waiting = new Set<Waiting>();
  #latest: Reading | null = null;
  /** Reads that were started earlier do not count. */
  #oldestNs = 0n;
  #hasAnswered = false;
  #isReadingLong = false;
  #isDriven = false;
  readonly #background: Repeated;
  /** Background reads that failed in a row. */
  #failures = 0;

  /** `firstMs`: until the first background read, in milliseconds; null: it begins now. */
  constructor(options: MetadataReaderOptions, firstMs: number | null = null) {
    super();
    this.#options = options;
    this.#background = new Repeated(firstMs, () => this.#readInBackground());
  }

  /**
   * Whether `accepts` is true of the current metadata. Those that were read during the last second count when they are
   * accepted: otherwise callers with less patience than the service needs would never succeed. What refuses must have been
   * read after the call. Throws `unavailable` when that takes longer than 1 s or too many newer calls wait, the reason of
   * `gone`, and errors of `onRead`.
   */
  async check(accepts: (metadata: SandboxMetadata) => boolean, gone: AbortSignal): Promise<boolean> {
    const arrivedNs = process.hrtime.bigint();
    const latest = this.#latest;
    if (latest && arrivedNs - latest.endedNs <= RECENT_NS && accepts(latest.metadata)) return true;
    using place = this.#places.enter(gone);
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
      return await untilAborted(promise, place.signal);
    } finally {
      clearTimeout(limit);
      stopListening();
      this.#waiting.delete(waiting);
    }
  }

  /** Reads soon, in the background: the metadata may have changed. */
  refresh(): void {
    void this.#read(READ_LIMIT_MS).catch(() => {});
  }

  /** A pause begins: earlier results no longer decide calls, and the next background read waits. */
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

  /** Starts a read now and at intervals while calls wait. */
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
      // A read that was ended here says nothing to callers.
      if (!isTimeout(error)) for (const { onFailure } of this.#waiting) onFailure(error);
    } finally {
      if (isLong) this.#isReadingLong = false;
    }
  }

  /** Ignores the result of a read that was started before the latest one, or before `forget`. */
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

  /** Returns when to read next. */
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
