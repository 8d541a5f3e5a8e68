import {
  type IncomingMessage,
  maxHeaderSize,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import { clientErrorHandler, closeWith, refuseExpectation } from './client-errors.ts';
import { Pieces } from './pieces.ts';

/** So many requests of one connection may wait for the response before them. */
const MOST_WAITING = 32;
/** So many requests of all connections together may wait. */
const MOST_WAITING_IN_ALL = 1024;

/** Returns the number of open connections of a server. */
export function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((_error, count) => resolve(count ?? 0)));
}

interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly serve: RequestListener;
}

/** An open connection. */
interface Connection {
  /** The response in progress, or null. */
  current: ServerResponse | null;
  /** Requests that arrived before the response in progress has ended. */
  readonly waiting: Exchange[];
  /** Whether the connection was upgraded and carries no HTTP any more. */
  isUpgraded: boolean;
  /** Null until the parser is attached. */
  pieces: Pieces | null;
}

/**
 * Limits the connections of an HTTP server, and serves one request of each at a time. A pipelined request waits for the
 * response before it; a client that pipelines too many is disconnected. When there are too many connections, an idle one is
 * closed: first the oldest that never got a response, then the oldest that is kept alive. If none is idle, the new connection
 * is refused with 503. So a client that holds idle connections locks out nobody but itself.
 */
export class Connections {
  readonly #most: number;
  readonly #headLimit: number;
  /** The oldest connection comes first. */
  readonly #open = new Map<Socket, Connection>();
  #waiting = 0;
  #refused = 0;
  #closed = 0;

  /** @param headLimit the server's `maxHeaderSize`, in bytes */
  constructor(most: number, headLimit = maxHeaderSize) {
    this.#most = most;
    this.#headLimit = headLimit;
  }

  get open(): number {
    return this.#open.size;
  }

  /** Returns the sockets of the open connections. */
  sockets(): Iterable<Socket> {
    return this.#open.keys();
  }

  /** The numbers of connections that were refused, and that were closed for a new one or for too many waiting requests. */
  get counts(): { readonly refused: number; readonly closed: number } {
    return { refused: this.#refused, closed: this.#closed };
  }

  /**
   * Makes `serve` answer the requests of `server`, which must not listen yet. A refused connection never gets an HTTP parser. For a
   * request with `Expect: 100-continue`, `serve` sends that response itself, see `expectsContinue`.
   */
  attach(server: Server, serve: RequestListener): void {
    const parse = server.listeners('connection');
    server.removeAllListeners('connection').on('connection', (socket: Socket) => {
      const connection = this.#accept(socket);
      if (connection === null) return;
      for (const listener of parse) listener.call(server, socket);
      connection.pieces = new Pieces(socket);
    });
    server.on('upgrade', (_request, socket) => this.#keep(socket as Socket));
    for (const event of ['request', 'checkContinue'] as const)
      server.on(event, (request, response) => this.#arrive({ request, response, serve }));
    server.on('checkExpectation', (request, response) =>
      this.#arrive({ request, response, serve: refuseExpectation }),
    );
    const currentOf = (socket: Socket) => this.#open.get(socket)?.current ?? null;
    const refuse = clientErrorHandler(currentOf, this.#headLimit);
    server.on('clientError', (error, socket) => {
      this.#open.get(socket as Socket)?.pieces?.refuse();
      refuse(error, socket as Socket);
    });
  }

  /** Returns whether a connection is open, and no request of it is being served or waits. */
  isIdle(socket: Socket): boolean {
    const connection = this.#open.get(socket);
    return connection !== undefined && connection.current === null && connection.waiting.length === 0;
  }

  /** Marks a connection as upgraded: it counts as in use until it is closed. */
  #keep(socket: Socket): void {
    const connection = this.#open.get(socket);
    if (!connection) return;
    connection.isUpgraded = true;
    connection.pieces?.release();
  }

  /** Returns null and refuses the connection with 503 when all are in use. */
  #accept(socket: Socket): Connection | null {
    if (this.#open.size >= this.#most && !this.#makeRoom()) {
      this.#refused++;
      socket.on('error', () => {}).resume();
      const text = `too many connections: ${this.#most} are in use (--max-connections): close some, or try again later`;
      closeWith(socket, 503, text);
      return null;
    }
    const connection: Connection = { current: null, waiting: [], isUpgraded: false, pieces: null };
    this.#open.set(socket, connection);
    socket.once('close', () => this.#forget(socket));
    return connection;
  }

  #arrive(exchange: Exchange): void {
    const { socket } = exchange.request;
    const connection = this.#open.get(socket);
    if (!connection) return;
    connection.pieces?.begin(exchange.request);
    const { current, waiting } = connection;
    if (current === null && waiting.length === 0) {
      this.#begin(connection, exchange);
    } else if (waiting.length >= MOST_WAITING || this.#waiting >= MOST_WAITING_IN_ALL) {
      // What was read behind this request is not parsed.
      this.#close(socket);
    } else {
      waiting.push(exchange);
      this.#waiting++;
    }
  }

  #begin(connection: Connection, { request, response, serve }: Exchange): void {
    connection.current = response;
    response.once('close', () => {
      connection.current = null;
      // A turn of the event loop of its own lets other connections come between the requests of a burst.
      if (connection.waiting.length > 0) setImmediate(() => this.#beginNext(connection));
    });
    serve(request, response);
  }

  #beginNext(connection: Connection): void {
    const next = connection.waiting.shift();
    if (!next) return;
    this.#waiting--;
    this.#begin(connection, next);
  }

  #makeRoom(): boolean {
    let idle: Socket | null = null;
    for (const [socket, { current, waiting, isUpgraded }] of this.#open) {
      if (current !== null || waiting.length > 0 || isUpgraded) continue;
      if (socket.bytesWritten === 0) return this.#close(socket);
      idle ??= socket;
    }
    return idle !== null && this.#close(idle);
  }

  #close(socket: Socket): true {
    this.#forget(socket);
    this.#closed++;
    socket.destroy();
    return true;
  }

  #forget(socket: Socket): void {
    const connection = this.#open.get(socket);
    if (!connection) return;
    this.#open.delete(socket);
    this.#waiting -= connection.waiting.length;
    connection.waiting.length = 0;
  }
}

/** Node emits `checkContinue` for requests whose header matches this. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** Returns whether the client waits for `100 Continue` before it sends the body. Source: RFC 9110, section 10.1.1. */
export function expectsContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1' && CONTINUE.test(headers.expect);
}
