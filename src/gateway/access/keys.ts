import { hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readFileSync, unwatchFile, watchFile } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { type OwnerQuota, readQuota } from './quotas.ts';

/** The owner of the key that a request carries. */
export type Caller = { readonly kind: 'platform' } | { readonly kind: 'client'; readonly name: string };

const PLATFORM: Caller = { kind: 'platform' };
const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** A quota of this name is for all clients that have none of their own. */
const EVERYBODY = '*';
const NO_QUOTA: OwnerQuota = {};
/** The file is checked for changes at this interval, in ms. */
const POLL_MS = 1000;

export interface KeySources {
  /** A platform key. If it is null, only the file has keys. */
  readonly apiKey: string | null;
  readonly keyFile: string | null;
}

/** The content of a key file. */
interface Known {
  /** The keys of this map are digests, so that the time of a look-up reveals nothing about the keys of callers. */
  readonly callers: ReadonlyMap<string, Caller>;
  readonly quotas: ReadonlyMap<string, OwnerQuota>;
}

/**
 * Holds the keys of the platform and of its clients, and the quotas of these. Reads the key file again when it changes, so that keys can be rotated
 * while the gateway runs. If the changed file cannot be used, the earlier keys remain valid.
 */
export class Keys implements Disposable {
  #known: Known;
  readonly #sources: KeySources;
  #onChange = () => {};

  /** Throws `invalid_argument` when the file cannot be used. */
  constructor(sources: KeySources, logger: Logger) {
    this.#sources = sources;
    this.#known = readKeys(sources);
    const { keyFile } = sources;
    if (keyFile === null) return;
    watchFile(keyFile, { interval: POLL_MS, persistent: false }, () => this.#reload(logger));
  }

  /** Calls `onChange` after each change from now on. */
  watch(onChange: () => void): void {
    this.#onChange = onChange;
  }

  /** Returns the caller whose key is in `X-API-Key`, or null if the header is absent or wrong. */
  callerOf({ 'x-api-key': shown }: IncomingHttpHeaders): Caller | null {
    return typeof shown === 'string' ? (this.#known.callers.get(digest(shown)) ?? null) : null;
  }

  /** Returns what an owner may have. The platform (null) has no limit. */
  quotaOf(owner: string | null): OwnerQuota {
    if (owner === null) return NO_QUOTA;
    const { quotas } = this.#known;
    return quotas.get(owner) ?? quotas.get(EVERYBODY) ?? NO_QUOTA;
  }

  /** Returns whether a value is a key of anyone. */
  isKey(value: string): boolean {
    return this.#known.callers.has(digest(value));
  }

  #reload(logger: Logger): void {
    try {
      this.#known = readKeys(this.#sources);
      this.#onChange();
      const { callers, quotas } = this.#known;
      logger.info({ keys: callers.size, quotas: quotas.size }, 'the key file has changed and was read again');
    } catch (error) {
      logger.error(
        { reason: messageOf(error) },
        'the changed key file cannot be used: the earlier keys remain valid',
      );
    }
  }

  [Symbol.dispose](): void {
    if (this.#sources.keyFile !== null) unwatchFile(this.#sources.keyFile);
  }
}

function readKeys({ apiKey, keyFile }: KeySources): Known {
  const { callers, quotas } =
    keyFile === null
      ? { callers: new Map<string, Caller>(), quotas: new Map() }
      : parseFile(keyFile, readText(keyFile));
  if (apiKey !== null) callers.set(digest(apiKey), PLATFORM);
  return { callers, quotas };
}

function readText(path: string): string {
  try {
    // Without O_NONBLOCK, opening a fifo would wait for its writer.
    const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      if (!fstatSync(file).isFile()) throw new Error(`${path} is not a regular file`);
      return readFileSync(file, 'utf8');
    } finally {
      closeSync(file);
    }
  } catch (error) {
    throw new EnvdError('invalid_argument', `cannot read the key file: ${messageOf(error)}`, {
      cause: error,
    });
  }
}

/**
 * Parses lines `platform KEY`, `client NAME KEY` and `quota NAME sandboxes=20 …`. Skips empty lines and those that begin with
 * `#`. Throws `invalid_argument`.
 */
function parseFile(path: string, text: string) {
  const known = { callers: new Map<string, Caller>(), quotas: new Map<string, OwnerQuota>() };
  for (const [index, line] of text.split('\n').entries()) {
    const [kind = '', ...words] = line.trim().split(/\s+/);
    if (kind === '' || kind.startsWith('#')) continue;
    const fault = addLine(known, kind, words);
    if (fault !== null) throw refusal(`line ${index + 1} of ${path} ${fault}`);
  }
  if (![...known.callers.values()].some(({ kind }) => kind === 'platform'))
    throw refusal(`${path} has no line 'platform KEY': add one`);
  return known;
}

/** Returns what is wrong with a line, or null. The text does not quote the line, because it may hold a key. */
function addLine(
  { callers, quotas }: { callers: Map<string, Caller>; quotas: Map<string, OwnerQuota> },
  kind: string,
  words: readonly string[],
): string | null {
  if (kind === 'quota') {
    const pair = parseQuota(words);
    if (!pair) return `must be ${LINES}`;
    if (quotas.has(pair[0])) return `is a second quota of '${pair[0]}': remove one of the lines`;
    quotas.set(...pair);
    return null;
  }
  const pair = parseKey(kind, words);
  if (!pair) return `must be ${LINES}`;
  if (callers.has(pair[0])) return 'has the same key twice: remove one of the lines';
  callers.set(...pair);
  return null;
}

function refusal(message: string): EnvdError {
  return new EnvdError('invalid_argument', message);
}

const LINES =
  "'platform KEY', 'client NAME KEY', or 'quota NAME' with some of sandboxes=N creates=N timeout=SECONDS cpu=N memory=MIB";

/** Returns the digest of a key and whose it is. */
function parseKey(kind: string | undefined, words: readonly string[]): [string, Caller] | null {
  const [first = '', second = ''] = words;
  if (kind === 'platform' && words.length === 1) return [digest(first), PLATFORM];
  if (kind !== 'client' || words.length !== 2 || !CLIENT_NAME.test(first)) return null;
  return [digest(second), { kind: 'client', name: first }];
}

function parseQuota([name = '', ...words]: readonly string[]): [string, OwnerQuota] | null {
  const quota = name === EVERYBODY || CLIENT_NAME.test(name) ? readQuota(words) : null;
  return quota && [name, quota];
}

function digest(key: string): string {
  return hash('sha256', key);
}
