import { setTimeout as delay } from 'node:timers/promises';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import { exchange } from '../../os/http-exchange.ts';

/** Response of the platform's metadata service; null: absent. */
export interface Metadata {
  readonly sandboxID: string | null;
  readonly templateID: string | null;
  /** SHA-512 in hex of the access token that /init may set; the hash of the empty string allows resetting it. */
  readonly accessTokenHash: string | null;
}

const TOKEN_PATH = '/latest/api/token';
/**
 * Lifetime of a session token. Each read requests a new one: after a resume another service may answer, which does not
 * know it.
 */
const TOKEN_TTL_S = 30;

/**
 * Reads the metadata: a session token by PUT, then with it the JSON at `url`
 * (docs/decisions/011-metadata-service.md). Throws `unavailable` if the service cannot be reached or its response is
 * invalid, and the reason of `signal`.
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

/** Ignores unknown members. Errors do not quote the response, which is secret. */
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
    throw new Error('the response is not JSON');
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw new Error('the response is not a JSON object');
}

/** Timeout of a caller of `fresh`, and of a background read, in milliseconds. */
const READ_LIMIT_MS = 1000;
/** Interval of background reads, in milliseconds. */
const INTERVAL_MS = 30_000;
/** Interval of attempts while a caller waits, in milliseconds. */
const RETRY_MS = 50;
/** First and longest interval of background attempts after a failure, in milliseconds; doubles each time. */
const BACKGROUND_RETRY_MS = [100, 5000] as const;

export interface MetadataReaderOptions {
  read(signal: AbortSignal): Promise<Metadata>;
  /** Called with each result before `fresh` returns it. */
  onRead(metadata: Metadata): Promise<void>;
  /** Called with the first error of a series of failed background reads. */
  onFailure(error: unknown): void;
}

/** Reads the metadata periodically, and on demand for callers that need a current value. */
export class MetadataReader implements Disposable {
  readonly #options: MetadataReaderOptions;
  readonly #stop = new AbortController();
  #latest: { readonly metadata: Metadata; readonly startedNs: bigint } | null = null;

  constructor(options: MetadataReaderOptions) {
    this.#options = options;
    void this.#readPeriodically();
  }

  /**
   * The result of a read that started at most `ageNs` ago. Throws `unavailable` if there is none within 1 s, and errors
   * of `onRead`.
   */
  async fresh(ageNs: bigint): Promise<Metadata> {
    const oldestNs = process.hrtime.bigint() - ageNs;
    if (this.#latest && this.#latest.startedNs >= oldestNs) return this.#latest.metadata;
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
    throw (
      failure ?? new EnvdError('unavailable', `metadata service did not answer within ${READ_LIMIT_MS} ms`)
    );
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
  }

  async #read(signal: AbortSignal): Promise<Metadata> {
    const startedNs = process.hrtime.bigint();
    const metadata = await this.#options.read(signal);
    this.#latest = { metadata, startedNs };
    await this.#options.onRead(metadata);
    return metadata;
  }

  async #readPeriodically(): Promise<void> {
    const { signal } = this.#stop;
    const [shortest, longest] = BACKGROUND_RETRY_MS;
    let retry: number = shortest;
    let reported = false;
    while (!signal.aborted) {
      try {
        await this.#read(AbortSignal.any([signal, AbortSignal.timeout(READ_LIMIT_MS)]));
        [retry, reported] = [shortest, false];
      } catch (error) {
        if (!reported && !signal.aborted) this.#options.onFailure(error);
        reported = true;
      }
      await delay(reported ? retry : INTERVAL_MS, undefined, { signal, ref: false }).catch(() => {});
      if (reported) retry = Math.min(retry * 2, longest);
    }
  }
}
