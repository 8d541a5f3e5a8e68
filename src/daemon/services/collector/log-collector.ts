import { limited, within } from '../../../base/abort.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { debug } from '../../../base/program/debug.ts';
import { type CollectorAddress, parseAddress } from './address.ts';
import type { LogQueue } from './log-queue.ts';

/** How long lines wait for others to be sent with, in milliseconds. */
const INTERVAL_MS = 1000;
/** Limit of a request, in milliseconds. */
const REQUEST_LIMIT_MS = 5000;
/** First and longest pause after a failure, in milliseconds; it doubles each time, and a random part is left out. */
const RETRY_MS = [500, 30_000] as const;
/** The limit of lines that wait before a collector is named, in bytes; and after. */
export const UNNAMED_LIMIT_BYTES = 512 * 1024;
const NAMED_LIMIT_BYTES = 8 * 1024 * 1024;
/** How long lines are kept for a collector that may still be named, in milliseconds. */
const PATIENCE_MS = 60_000;
/** How long the last try may delay the end of the daemon, in milliseconds. */
const LAST_TRY_MS = 500;

export interface LogCollectorOptions {
  readonly queue: LogQueue;
  /** Overrides the address from the metadata service; null: no override. */
  readonly url: URL | null;
  /** While true, nothing is sent and no timer is set. */
  isPaused(): boolean;
  /** Asks for `name` to be called again after a pause. */
  refresh(): void;
  /** Resolves with the status of the response. Throws when there is none. */
  post(url: URL, body: string, signal: AbortSignal): Promise<number>;
  /** Called with the first error of a series; the lines that it logs are not sent. */
  onFailure(error: unknown): void;
}

interface Destination {
  readonly url: URL;
  /** Members of each line, see `LogQueue.take`. */
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
  #wasNamed = false;
  #timer: NodeJS.Timeout | null = null;
  /** The request under way. */
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
      // After the pause it may be another sandbox.
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

  /** A pause begins: nothing is sent until the collector has been named again. */
  pause(): void {
    this.#startAfresh();
    this.#request?.abort.abort();
    if (this.#destination === null || this.#destination.ids === '') return;
    this.#options.queue.stamp(this.#destination.ids);
    this.#destination = null;
    this.#isForgotten = true;
  }

  /** Sends the waiting lines, for half a second at most; after that nothing is sent. */
  async close(): Promise<void> {
    this.#stopTimer();
    this.#isClosed = true;
    await within(LAST_TRY_MS, this.#sendAll(), () => {});
    this[Symbol.dispose]();
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    // The last try may still be under way: it sends nothing more.
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

  /** Timers do not keep the daemon running. */
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

  /** Returns false when the batch has to be sent again, or nothing can be sent. */
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

/** The same batch would be refused again. */
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
