import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { exchange } from '../../os/http-exchange.ts';

/** What the platform's metadata service tells; null: nothing. */
export interface Metadata {
  readonly sandboxID: string | null;
  readonly templateID: string | null;
  /** SHA-512 in hex of the access token that /init may set; of the empty string: it may be reset. */
  readonly accessTokenHash: string | null;
}

const TOKEN_PATH = '/latest/api/token';
/** One token serves one reading: after a resume the service may be another one, which does not know it. */
const TOKEN_TTL_S = 30;

/**
 * Reads the metadata: a session token by PUT, then with it the JSON at `url`
 * (docs/decisions/011-metadata-service.md). Throws `unavailable` when the service cannot be reached or does not
 * answer as it should, and the reason of `signal`.
 */
export async function readMetadata(url: URL, signal: AbortSignal): Promise<Metadata> {
  try {
    const tokenUrl = new URL(TOKEN_PATH, url);
    const ttl = { 'X-metadata-token-ttl-seconds': TOKEN_TTL_S, 'content-length': 0 };
    const token = (await exchange('PUT', tokenUrl, ttl, signal)).trim();
    const text = await exchange(
      'GET',
      url,
      { 'X-metadata-token': token, accept: 'application/json' },
      signal,
    );
    return parse(text);
  } catch (error) {
    signal.throwIfAborted();
    throw new EnvdError('unavailable', `metadata service '${url}' cannot be read: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/** Unknown members are a newer platform's; nothing of the answer gets into an error. */
function parse(text: string): Metadata {
  const members = parseObject(text);
  const member = (name: keyof Metadata): string | null => {
    const value = members[name] ?? '';
    if (typeof value !== 'string' || value.includes('\0')) throw new Error(`${name} is not a string`);
    return value || null;
  };
  return {
    sandboxID: member('sandboxID'),
    templateID: member('templateID'),
    accessTokenHash: member('accessTokenHash'),
  };
}

function parseObject(text: string): Readonly<Partial<Record<keyof Metadata, unknown>>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Error('the answer is not JSON');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new Error('the answer is not a JSON object');
}

/** How long a caller waits for a reading, and the background for an answer, in milliseconds. */
const READ_LIMIT_MS = 1000;
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
