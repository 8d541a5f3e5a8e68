import { limited, within } from '../../../base/abort.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { debug } from '../../../base/program/debug.ts';
import { type CollectorAddress, parseAddress } from './address.ts';
import type { LogQueue } from './log-queue.ts';

/** How long a line waits for others that are sent with it, in milliseconds. */
const INTERVAL_MS = 1000;
const REQUEST_LIMIT_MS = 5000;
/**
 * The first and the longest pause after a failure, in milliseconds. It doubles each time, and up to half of it is left out at
 * random.
 */
const RETRY_MS = [500, 30_000] as const;
/** The most bytes of lines that wait before the metadata service names a collector, and after that. */
export const UNNAMED_LIMIT_BYTES = 512 * 1024;
const NAMED_LIMIT_BYTES = 8 * 1024 * 1024;
/** How long lines are kept while no collector was named, in milliseconds. */
const PATIENCE_MS = 60_000;
/** How long the last lines may delay the end of the daemon, in milliseconds. */
const LAST_TRY_MS = 500;

export interface LogCollectorOptions {
  readonly queue: LogQueue;
  /** The address to use instead of that of the metadata service; null when there is none. */
  readonly url: URL | null;
  /** While it returns true, nothing is sent and no timer is set. */
  isPaused(): boolean;
  /** Asks for a call of `name`, because a pause has made the address unknown. */
  refresh(): void;
  /** Sends a batch; resolves with the status of the response. Throws when there is none. */
  post(url: URL, body: string, signal: AbortSignal): Promise<number>;
  /** Called with the first error of a series. Lines that it logs are not sent. */
  onFailure(error: unknown): void;
}

interface Destination {
  readonly url: URL;
  /** The members that each line gets. See `LogQueue.take`. */
  readonly ids: string;
}

/**
 * Sends the lines of a queue to the platform's collector, in batches, one request at a time
 * (docs/decisions/016-metadata-and-logs.md).
 */
export class LogCollector implements Disposable {
  readonly #options: LogCollectorOptions;
  readonly #startedMs = monotonicMs();
  #destination: Destination | null = null;
  /** Whether a pause has made the address and the ids unknown. */
  #isForgotten = false;
  /** Whether `name` was ever called outside of a pause. */
  #wasNamed = false;
  #timer: NodeJS.Timeout | null = null;
  #request: { readonly abort: AbortController; readonly done: Promise<boolean> } | null = null;
  #failures = 0;
  #isReported = false;
  #isClosed = false;

  constructor(options: LogCollectorOptions) {
    this.#options = options;
    options.queue.on('line', () => this.#schedule());
  }

  /** Sets the collector's address and the ids of the sandbox, as the metadata service gives them. */
  name(named: CollectorAddress): void {
    const { queue, isPaused } = this.#options;
    if (isPaused()) {
      // After the pause the guest may be another sandbox.
      this.#isForgotten = true;
      return;
    }
    this.#wasNamed = true;
    this.#isForgotten = false;
    const url = this.#urlOf(named);
    const next = url && { url, ids: idsOf(named) };
    const previous = this.#destination;
    if (previous && previous.ids !== next?.ids) queue.stamp(previous.ids);
    this.#destination = next;
    debug('collector', 'collector set', () => ({ hasUrl: next !== null }));
    queue.limit = next ? NAMED_LIMIT_BYTES : 0;
    if (next?.url.href !== previous?.url.href) this.#startAfresh();
    this.#schedule();
  }

  /** Call it when a pause begins. Nothing is sent until `name` was called again. */
  pause(): void {
    this.#startAfresh();
    this.#request?.abort.abort();
    if (this.#destination === null || this.#destination.ids === '') return;
    this.#options.queue.stamp(this.#destination.ids);
    this.#destination = null;
    this.#isForgotten = true;
  }

  /** Sends the lines that wait, for half a second at most. After that nothing is sent. */
  async close(): Promise<void> {
    this.#stopTimer();
    this.#isClosed = true;
    await within(LAST_TRY_MS, this.#sendAll(), () => {});
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    // `close` may still be sending. Without a destination it sends nothing more.
    this.#destination = null;
    this.#stopTimer();
    this.#request?.abort.abort();
  }

  #urlOf({ address }: CollectorAddress): URL | null {
    if (this.#options.url !== null || address === null) return this.#options.url;
    const url = parseAddress(address);
    if (url === null)
      this.#report(new Error('the metadata name an address that is not an http or https URL'));
    return url;
  }

  #schedule(): void {
    const { queue, isPaused } = this.#options;
    if (this.#timer || this.#request || this.#isClosed || queue.isEmpty || isPaused()) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#onTime();
    }, this.#delayMs()).unref();
  }

  #delayMs(): number {
    if (this.#failures === 0) return this.#destination && this.#options.queue.hasBatch ? 0 : INTERVAL_MS;
    const [first, longest] = RETRY_MS;
    return Math.min(first * 2 ** (this.#failures - 1), longest) * (0.5 + Math.random() / 2);
  }

  #onTime(): void {
    if (this.#options.isPaused()) return;
    if (this.#destination) return void this.#send();
    if (this.#isForgotten) this.#options.refresh();
    else if (!this.#wasNamed && monotonicMs() - this.#startedMs > PATIENCE_MS) {
      this.name({ address: null, sandboxID: null, templateID: null });
    }
  }

  /** Sends a batch. Resolves with false when the batch has to be sent again, or nothing can be sent. */
  #send(): Promise<boolean> {
    if (this.#destination === null || this.#options.isPaused()) return Promise.resolve(false);
    const abort = new AbortController();
    const done = this.#attempt(this.#destination, abort.signal);
    this.#request = { abort, done };
    return done;
  }

  async #attempt({ url, ids }: Destination, signal: AbortSignal): Promise<boolean> {
    const { queue, post } = this.#options;
    let outcome: 'sent' | 'refused' | 'kept' = 'kept';
    try {
      const batch = queue.take(ids);
      const status = await limited(REQUEST_LIMIT_MS, signal, (both) => post(url, batch, both));
      const isSuccess = status >= 200 && status < 300;
      if (isSuccess) this.#startAfresh();
      else this.#report(new Error(`the collector returned status ${status}`));
      outcome = isSuccess ? 'sent' : isFinal(status) ? 'refused' : 'kept';
    } catch (error) {
      if (!signal.aborted) this.#report(error);
    }
    queue.settle(outcome);
    if (outcome === 'kept' && !signal.aborted) this.#failures++;
    this.#request = null;
    this.#schedule();
    return outcome !== 'kept';
  }

  async #sendAll(): Promise<void> {
    const { queue } = this.#options;
    await this.#request?.done;
    while (!queue.isEmpty && (await this.#send()));
  }

  #report(error: unknown): void {
    if (this.#isReported) return;
    this.#isReported = true;
    const { queue, onFailure } = this.#options;
    queue.quietly(() => onFailure(error));
  }

  #startAfresh(): void {
    this.#failures = 0;
    this.#isReported = false;
    this.#stopTimer();
  }

  #stopTimer(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
  }
}

/** Returns whether the same batch would be refused again. */
function isFinal(status: number): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}

/** The most characters of an id in a line. */
const LONGEST_ID = 128;

function idsOf({ sandboxID, templateID }: CollectorAddress): string {
  const ids = Object.entries({ instanceID: sandboxID, envID: templateID });
  const known = ids.filter((entry): entry is [string, string] => entry[1] !== null);
  return known.map(([name, id]) => `"${name}":${JSON.stringify(id.slice(0, LONGEST_ID))},`).join('');
}
