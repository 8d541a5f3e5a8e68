import { ErrorReply } from '@redis/client';
import type { Logger } from 'pino';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { CommandLimit } from './command-limit.ts';
import { CONNECT_TIMEOUT_MS, checkServer, makeClient, type RedisClient } from './redis-client.ts';
import { CHANGES } from './redis-scripts.ts';
import { Replication } from './replication.ts';

/** The bounds of the time between two attempts to connect, in ms. */
const FIRST_RETRY_MS = 50;
const LONGEST_RETRY_MS = 2000;

/** Of replies: it is a replica; another node of the cluster has the registry. */
const ELSEWHERE: readonly string[] = ['READONLY', 'MOVED'];

/** The user or the password of the URL is wrong, or may not do what a gateway does. */
const FORBIDDEN: readonly string[] = ['NOAUTH', 'WRONGPASS', 'NOPERM'];

/** Finds the URL of the server that takes writes now. */
export type Locate = () => Promise<string>;

/** Called with each published message; null: some may have been lost. */
export type OnMessage = (message: string | null) => void;

/** Which server has the registry. */
export interface Server {
  readonly locate: Locate;
  /** How many of its replicas must have a change before it is answered. */
  readonly replicas: number;
  readonly isCluster: boolean;
}

/** What is connected to one server, and lost together. */
interface Connection extends Disposable {
  /** The one for commands and messages first. */
  readonly clients: readonly RedisClient[];
  readonly client: RedisClient;
  /** Null: no replica has to have a change. */
  readonly replication: Replication | null;
}

/**
 * The one connection to the server that takes writes, for commands and messages, with another one where replicas are waited
 * for. When one is lost, both are made again, to the server that takes writes then.
 */
export class RedisLink implements Disposable {
  readonly #server: Server;
  readonly #onMessage: OnMessage;
  readonly #logger: Logger;
  readonly #limit = new CommandLimit();
  #connection: Connection | null = null;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;

  private constructor(server: Server, onMessage: OnMessage, logger: Logger) {
    this.#server = server;
    this.#onMessage = onMessage;
    this.#logger = logger;
  }

  /** Throws `unavailable` when no server can be reached, `invalid_argument` when it is of a kind that cannot be used. */
  static async open(server: Server, onMessage: OnMessage, logger: Logger): Promise<RedisLink> {
    const link = new RedisLink(server, onMessage, logger);
    try {
      await link.#connect();
      return link;
    } catch (error) {
      link[Symbol.dispose]();
      if (error instanceof EnvdError) throw error;
      const reason = messageOf(error);
      const kind = FORBIDDEN.includes(codeOf(reason)) ? 'invalid_argument' : 'unavailable';
      throw new EnvdError(kind, `cannot reach the registry: ${reason}`, { cause: error });
    }
  }

  /** Throws `unavailable` when there is no connection, or no reply in time. */
  async run<T>(command: (client: RedisClient) => Promise<T>): Promise<T> {
    const connection = this.#connection;
    if (!connection) throw unreachable();
    try {
      return await this.#limit.run(() => command(connection.client));
    } catch (error) {
      const code = codeOf(messageOf(error));
      if (ELSEWHERE.includes(code)) this.#lose(connection, error);
      if (error instanceof EnvdError) throw error;
      throw error instanceof ErrorReply && !ELSEWHERE.includes(code) ? refused(error) : unreachable(error);
    }
  }

  /** The same for a change. Throws `unavailable` also when it has been made, and the replicas do not have it in time. */
  async write<T>(command: (client: RedisClient) => Promise<T>): Promise<T> {
    const replication = this.#connection?.replication;
    const reply = await this.run(command);
    await replication?.sync();
    return reply;
  }

  /**
   * To be called with an answer that is another command's: replies are told apart by their order alone, so nothing that
   * comes on this connection counts any more. Throws `unavailable`.
   */
  distrust(): never {
    const reason = new EnvdError('unavailable', 'the registry has answered what was not asked');
    if (this.#connection) this.#lose(this.#connection, reason);
    throw reason;
  }

  async #connect(): Promise<void> {
    const connection = makeConnection(await this.#server.locate(), this.#server);
    // A client may fail before it is asked anything; without a listener the error would be uncaught.
    const { promise: lost, reject } = Promise.withResolvers<never>();
    for (const client of connection.clients) {
      client.on('error', (error) => {
        reject(error);
        this.#lose(connection, error);
      });
    }
    try {
      const begun = begin(connection, this.#onMessage, this.#server.isCluster);
      await within(CONNECT_TIMEOUT_MS, Promise.race([begun, lost]), () => {
        throw new EnvdError('unavailable', `the registry does not answer (within ${CONNECT_TIMEOUT_MS} ms)`);
      });
      if (this.#closed) throw new EnvdError('aborted', 'the registry is no longer used');
    } catch (error) {
      connection[Symbol.dispose]();
      throw error;
    }
    this.#connection = connection;
    this.#onMessage(null);
  }

  #lose(connection: Connection, error: unknown): void {
    if (this.#connection !== connection) return;
    this.#connection = null;
    connection[Symbol.dispose]();
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
    this.#connection?.[Symbol.dispose]();
    this.#connection = null;
  }
}

/** The first word of an error reply. */
const codeOf = (message: string) => message.split(' ', 1)[0] ?? '';

function unreachable(cause?: unknown): EnvdError {
  return new EnvdError('unavailable', 'the registry cannot be reached', { cause });
}

/** The server has answered, but does not do what it was asked: it is full, it starts, it misses replicas or nodes. */
function refused(reply: ErrorReply): EnvdError {
  return new EnvdError('unavailable', `the registry refuses what it was asked: ${messageOf(reply)}`, {
    cause: reply,
  });
}

function makeConnection(url: string, server: Server): Connection {
  const client = makeClient(url);
  const waiting = server.replicas > 0 ? makeClient(url) : null;
  return {
    client,
    clients: waiting ? [client, waiting] : [client],
    replication: waiting && new Replication(waiting, server.replicas, server.isCluster),
    [Symbol.dispose]() {
      // destroy() throws for a client that is closed already.
      for (const each of this.clients) if (each.isOpen) each.destroy();
    },
  };
}

/** Connects, and subscribes to the changes before anything is read. */
async function begin(
  { client, clients }: Connection,
  onMessage: OnMessage,
  isCluster: boolean,
): Promise<void> {
  await Promise.all(clients.map((each) => each.connect()));
  checkServer(await client.info(), isCluster);
  await client.subscribe(CHANGES, onMessage);
}
