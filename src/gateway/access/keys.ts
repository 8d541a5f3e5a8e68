import { hash } from 'node:crypto';
import { closeSync, constants, fstatSync, openSync, readFileSync, unwatchFile, watchFile } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';

/** The owner of the key that a request carries. */
export type Caller = { readonly kind: 'platform' } | { readonly kind: 'client'; readonly name: string };

const PLATFORM: Caller = { kind: 'platform' };
const CLIENT_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
/** The file is checked for changes at this interval, in ms. */
const POLL_MS = 1000;

export interface KeySources {
  /** A platform key. If it is null, only the file has keys. */
  readonly apiKey: string | null;
  readonly keyFile: string | null;
}

/**
 * Holds the keys of the platform and of its clients. Reads the key file again when it changes, so that keys can be rotated
 * while the gateway runs. If the changed file cannot be used, the earlier keys remain valid.
 */
export class Keys implements Disposable {
  /** The keys of this map are digests, so that the time of a look-up reveals nothing about the keys of callers. */
  #callers: ReadonlyMap<string, Caller>;
  readonly #sources: KeySources;
  #onChange = () => {};

  /** Throws `invalid_argument` when the file cannot be used. */
  constructor(sources: KeySources, logger: Logger) {
    this.#sources = sources;
    this.#callers = readKeys(sources);
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
    return typeof shown === 'string' ? (this.#callers.get(digest(shown)) ?? null) : null;
  }

  /** Returns whether a value is a key of anyone. */
  isKey(value: string): boolean {
    return this.#callers.has(digest(value));
  }

  #reload(logger: Logger): void {
    try {
      this.#callers = readKeys(this.#sources);
      this.#onChange();
      logger.info({ keys: this.#callers.size }, 'the key file has changed and was read again');
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

function readKeys({ apiKey, keyFile }: KeySources): ReadonlyMap<string, Caller> {
  const callers = new Map<string, Caller>();
  if (keyFile !== null) {
    for (const [key, caller] of parseKeys(keyFile, readText(keyFile))) callers.set(digest(key), caller);
  }
  if (apiKey !== null) callers.set(digest(apiKey), PLATFORM);
  return callers;
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
 * Parses lines `platform KEY` and `client NAME KEY`. Skips empty lines and those that begin with `#`. Throws
 * `invalid_argument`.
 */
function parseKeys(path: string, text: string): readonly (readonly [string, Caller])[] {
  const pairs = text.split('\n').flatMap((line, index) => {
    const words = line.trim().split(/\s+/);
    if (line.trim() === '' || line.trim().startsWith('#')) return [];
    const pair = parseLine(words);
    if (pair) return [pair];
    // The message does not quote the line, because it may hold a key.
    const message = `line ${index + 1} of ${path} must be 'platform KEY' or 'client NAME KEY'`;
    throw new EnvdError('invalid_argument', message);
  });
  if (new Set(pairs.map(([key]) => key)).size < pairs.length)
    throw new EnvdError('invalid_argument', `${path} has the same key twice: remove one of the lines`);
  if (pairs.some(([, { kind }]) => kind === 'platform')) return pairs;
  throw new EnvdError('invalid_argument', `${path} has no line 'platform KEY': add one`);
}

function parseLine([kind, ...words]: readonly string[]): readonly [string, Caller] | null {
  const [first = '', second = ''] = words;
  if (kind === 'platform' && words.length === 1) return [first, PLATFORM];
  if (kind !== 'client' || words.length !== 2 || !CLIENT_NAME.test(first)) return null;
  return [second, { kind: 'client', name: first }];
}

function digest(key: string): string {
  return hash('sha256', key);
}
