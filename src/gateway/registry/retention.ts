import type { Logger } from 'pino';
import { EnvdError } from '../../base/errors.ts';
import { evictionFault, readInfo } from './redis-client.ts';
import type { RedisLink } from './redis-link.ts';
import { SHARED_KEY } from './redis-scripts.ts';

/** The server is checked at this interval, in ms. */
const CHECK_MS = 2000;

/**
 * Checks again and again that the server keeps the records. Its settings may change, and it may be emptied or replaced by an
 * empty one. Then every machine has lost its record, so only a person can say what follows.
 */
export class Retention implements Disposable {
  readonly #link: RedisLink;
  readonly #logger: Logger;
  readonly #timer: NodeJS.Timeout;
  /** The secret of the registry, which is lost together with the records. It is null before it is known. */
  #key: string | null = null;
  /** So many keys had been removed when the gateway started. */
  #evicted: number | null = null;
  /** Why the server may remove records; null if it keeps them. */
  #threat: string | null = null;
  /** True if the last reply did not have the secret. */
  #isInDoubt = false;
  /** Why records are lost; null if they are not. */
  #loss: string | null = null;

  constructor(link: RedisLink, logger: Logger) {
    this.#link = link;
    this.#logger = logger;
    this.#timer = setInterval(() => void this.inspect().catch(() => {}), CHECK_MS).unref();
  }

  /** Must be called with the secret of the registry when that is known. */
  expect(key: string): void {
    this.#key = key;
  }

  /** Throws `unavailable` when the server may remove records, or has lost some. */
  assertKept(): void {
    const reason = this.#loss ?? this.#threat ?? (this.#isInDoubt ? DOUBT : null);
    if (reason !== null) throw new EnvdError('unavailable', `the registry is not safe: ${reason}`);
  }

  /** Asks the server. Throws `unavailable` when it does not answer. */
  async inspect(): Promise<void> {
    const [info, key] = await this.#link.run((client) =>
      Promise.all([client.info(), client.get(SHARED_KEY)]),
    );
    // Only their order distinguishes replies, so a wrong one may belong to another command.
    if (readInfo(info, 'redis_version') === '') this.#link.distrust();
    this.#threat = evictionFault(info);
    const evicted = Number(readInfo(info, 'evicted_keys'));
    // A server that has restarted counts from 0 again.
    this.#evicted = Math.min(this.#evicted ?? evicted, evicted);
    if (evicted > this.#evicted) this.#lose(EVICTED);
    if (this.#key === null || key === this.#key) this.#isInDoubt = false;
    else this.#doubt();
  }

  /** The secret counts as lost when two connections in a row do not have it. */
  #doubt(): void {
    if (this.#isInDoubt) this.#lose(EMPTIED);
    else {
      this.#isInDoubt = true;
      this.#link.distrust();
    }
  }

  #lose(reason: string): void {
    if (this.#loss !== null) return;
    this.#loss = reason;
    this.#logger.error({ reason }, 'the registry has lost records');
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

const ADVICE =
  'nothing is created until the gateways are started again, so first find out which machines have no record';
const DOUBT = 'Redis has not shown the secret of the registry, and is asked again';
const EMPTIED = `Redis was emptied or replaced by another one: ${ADVICE}`;
const EVICTED = `Redis has removed keys because its memory was full: ${ADVICE}`;
