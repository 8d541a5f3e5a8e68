import { ErrorReply } from '@redis/client';
import type { Logger } from 'pino';
import { within } from '../../base/abort.ts';
import { EnvdError, messageOf } from '../../base/errors.ts';
import { CommandLimit } from './command-limit.ts';
import { CONNECT_TIMEOUT_MS, checkServer, makeClient, type RedisClient } from './redis-client.ts';
import { CHANGES } from './redis-scripts.ts';
import { Replication } from './replication.ts';

/** The time between two attempts to connect has these bounds, in ms. */
const FIRST_RETRY_MS = 50;
const LONGEST_RETRY_MS = 2000;

/** A replica answers with the first code, and a node of a cluster that does not have the registry with the second. */
const ELSEWHERE: readonly string[] = ['READONLY', 'MOVED'];

/** A server answers with these codes when the user or the password is wrong, or when the user has too few permissions. */
const FORBIDDEN: readonly string[] = ['NOAUTH', 'WRONGPASS', 'NOPERM'];

/** Finds the URL of the server that accepts writes now. Throws `unavailable`. */
export type Locate = () => Promise<string>;

/** Is called with each published message, and with null when some may have been lost. */
export type OnMessage = (message: string | null) => void;

/** Describes the server that has the registry. */
export interface Server {
  readonly locate: Locate;
  /** At least this many of its replicas must have a change before the change is answered. */
  readonly replicas: number;
  readonly isCluster: boolean;
}

/** The clients of one server. If one is lost, all are replaced. */
interface Connection extends Disposable {
  /** The first client is for commands and messages. */
  readonly clients: readonly RedisClient[];
  readonly client: RedisClient;
  /** It is null if no replica must have a change. */
  readonly replication: Replication | null;
}

/**
 * The connection to the server that accepts writes, for commands and messages. A second connection waits for replicas, if any
 * must have a change. When one is lost, both are replaced by connections to the server that accepts writes then.
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

  /**
   * Connects. Throws `unavailable` when no server can be reached, and `invalid_argument` when the server or the password
   * cannot be used.
   */
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

  /**
   * Runs a command and returns its reply. Throws `unavailable` when there is no connection, no reply in time, or an error
   * reply.
   */
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

  /** Runs a command that changes something. Also throws `unavailable` when the replicas do not have the change in time. */
  async write<T>(command: (client: RedisClient) => Promise<T>): Promise<T> {
    const replication = this.#connection?.replication;
    const reply = await this.run(command);
    await replication?.sync();
    return reply;
  }

  /**
   * Must be called when a reply belongs to another command. Only their order distinguishes replies, so no later reply on this
   * connection can be trusted. Closes the connection, and throws `unavailable`.
   */
  distrust(): never {
    const reason = new EnvdError(
      'unavailable',
      'the registry sent the reply of another command: the gateway connects again',
    );
    if (this.#connection) this.#lose(this.#connection, reason);
    throw reason;
  }

  async #connect(): Promise<void> {
    const connection = makeConnection(await this.#server.locate(), this.#server);
    // A client may fail before its first command. Without a listener, that error would be uncaught.
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
        throw new EnvdError(
          'unavailable',
          `the registry did not answer within ${CONNECT_TIMEOUT_MS / 1000} s`,
        );
      });
      if (this.#closed)
        throw new EnvdError('aborted', 'the gateway is stopping, so it needs no connection to the registry');
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
    if (!this.#closed)
      this.#logger.warn(
        { reason: messageOf(error) },
        'the registry cannot be reached: the gateway connects again',
      );
  }

  [Symbol.dispose](): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#connection?.[Symbol.dispose]();
    this.#connection = null;
  }
}

/** Returns the first word of an error reply, which is its code. */
const codeOf = (message: string) => message.split(' ', 1)[0] ?? '';

function unreachable(cause?: unknown): EnvdError {
  return new EnvdError('unavailable', 'the registry cannot be reached', { cause });
}

/** Returns the error for an error reply. A server sends one when it is full or starting, or when it lacks replicas or nodes. */
function refused(reply: ErrorReply): EnvdError {
  return new EnvdError('unavailable', `the registry refused a command: ${messageOf(reply)}`, {
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
      // destroy() would throw for a client that is already closed.
      for (const each of this.clients) if (each.isOpen) each.destroy();
    },
  };
}

/** Connects, and subscribes to the changes before any record is read. */
async function begin(
  { client, clients }: Connection,
  onMessage: OnMessage,
  isCluster: boolean,
): Promise<void> {
  await Promise.all(clients.map((each) => each.connect()));
  checkServer(await client.info(), isCluster);
  await client.subscribe(CHANGES, onMessage);
}
