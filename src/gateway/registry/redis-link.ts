import { createClient, ErrorReply } from '@redis/client';
import type { Logger } from 'pino';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { CommandLimit } from './command-limit.ts';
import { CHANGES, SCRIPTS } from './redis-scripts.ts';

const CONNECT_TIMEOUT_MS = 5000;
/** A connection on which nothing is sent or received for so long is made anew; the scheduler asks more often. */
const SILENT_MS = 5000;
/** The bounds of the time between two attempts to connect, in ms. */
const FIRST_RETRY_MS = 50;
const LONGEST_RETRY_MS = 2000;
/** The oldest version that has all commands: SET with NX and GET. */
const OLDEST_MAJOR = 7;

/** Of replies to writes: it is a replica; `min-replicas-to-write` are not there. */
const UNWRITABLE: readonly string[] = ['READONLY', 'NOREPLICAS'];

/** Finds the URL of the server that takes writes now. */
export type Locate = () => Promise<string>;

/** Called with each published message; null: some may have been lost. */
export type OnMessage = (message: string | null) => void;

function makeClient(url: string) {
  return createClient({
    url,
    scripts: SCRIPTS,
    // Replies and messages come in one order, on one connection.
    RESP: 3,
    disableOfflineQueue: true,
    socket: { connectTimeout: CONNECT_TIMEOUT_MS, socketTimeout: SILENT_MS, reconnectStrategy: false },
  });
}

export type RedisClient = ReturnType<typeof makeClient>;

/**
 * The one connection to the server that takes writes, for commands and messages. When it is lost, another one is made, to
 * the server that takes writes then.
 */
export class RedisLink implements Disposable {
  readonly #locate: Locate;
  readonly #onMessage: OnMessage;
  readonly #logger: Logger;
  readonly #limit = new CommandLimit();
  #client: RedisClient | null = null;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(locate: Locate, onMessage: OnMessage, logger: Logger) {
    this.#locate = locate;
    this.#onMessage = onMessage;
    this.#logger = logger;
  }

  /** Throws `unavailable` when no server can be reached, `invalid_argument` when it is of a kind that cannot be used. */
  static async open(locate: Locate, onMessage: OnMessage, logger: Logger): Promise<RedisLink> {
    const link = new RedisLink(locate, onMessage, logger);
    try {
      await link.#connect();
      return link;
    } catch (error) {
      link[Symbol.dispose]();
      if (error instanceof EnvdError) throw error;
      throw new EnvdError('unavailable', `cannot reach the registry: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Throws `unavailable` when there is no connection, or no reply in time. */
  async run<T>(command: (client: RedisClient) => Promise<T>): Promise<T> {
    const client = this.#client;
    if (!client) throw unreachable();
    try {
      return await this.#limit.run(() => command(client));
    } catch (error) {
      const [code = ''] = messageOf(error).split(' ', 1);
      // It has become a replica, and another server takes the writes.
      if (code === 'READONLY') this.#lose(client, error);
      const isOwn = error instanceof EnvdError || (error instanceof ErrorReply && !UNWRITABLE.includes(code));
      throw isOwn ? error : unreachable(error);
    }
  }

  async #connect(): Promise<void> {
    const client = makeClient(await this.#locate());
    client.on('error', (error) => this.#lose(client, error));
    try {
      await within(CONNECT_TIMEOUT_MS, begin(client, this.#onMessage), () => {
        throw new EnvdError('unavailable', `the registry does not answer (within ${CONNECT_TIMEOUT_MS} ms)`);
      });
      if (this.#closed) throw new EnvdError('aborted', 'the registry is no longer used');
    } catch (error) {
      destroy(client);
      throw error;
    }
    this.#client = client;
    this.#onMessage(null);
  }

  #lose(client: RedisClient, error: unknown): void {
    if (this.#client !== client) return;
    this.#client = null;
    destroy(client);
    this.#onMessage(null);
    this.#warn(error);
    this.#reconnect(FIRST_RETRY_MS);
  }

  #reconnect(delayMs: number): void {
    if (this.#closed) return;
    this.#retry = setTimeout(() => {
      this.#connect().catch((error: unknown) => {
        this.#warn(error);
        this.#reconnect(Math.min(2 * delayMs, LONGEST_RETRY_MS));
      });
    }, delayMs);
  }

  #warn(error: unknown): void {
    if (!this.#closed) this.#logger.warn({ reason: messageOf(error) }, 'the registry cannot be reached');
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    if (this.#client) destroy(this.#client);
    this.#client = null;
  }
}

function unreachable(cause?: unknown): EnvdError {
  return new EnvdError('unavailable', 'the registry cannot be reached', { cause });
}

/** Connects, and subscribes to the changes before anything is read. */
async function begin(client: RedisClient, onMessage: OnMessage): Promise<void> {
  await client.connect();
  check(await client.info());
  await client.subscribe(CHANGES, onMessage);
}

/** Throws `invalid_argument` for a server that cannot keep the registry, from what INFO says of it. */
function check(info: string): void {
  const read = (name: string) => new RegExp(`^${name}:([^\\r\\n]*)`, 'm').exec(info)?.[1] ?? '';
  const [version, mode, role] = ['redis_version', 'redis_mode', 'role'].map(read);
  if (Number.parseInt(version ?? '', 10) < OLDEST_MAJOR)
    refuse(`it is Redis ${version}, and version ${OLDEST_MAJOR} or later is needed`);
  if (mode === 'sentinel') refuse('it is a Sentinel, which --redis-sentinels is for');
  if (mode === 'cluster') {
    refuse(
      'it is a node of a cluster: one record and its place in the lists are changed together, which a cluster only does ' +
        'for keys on one of its nodes, so that the others would be of no use; a server with replicas and Sentinels does',
    );
  }
  if (role === 'slave') throw new EnvdError('unavailable', 'the server of the registry is a replica');
}

function refuse(reason: string): never {
  throw new EnvdError('invalid_argument', `the server of the registry cannot be used: ${reason}`);
}

function destroy(client: RedisClient): void {
  // It throws when it is closed already.
  if (client.isOpen) client.destroy();
}
