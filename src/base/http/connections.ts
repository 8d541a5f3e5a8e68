import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { clientErrorHandler, closeWith, refuseExpectation } from './client-errors.ts';

/** Requests of one connection that may wait for the response before them. */
const MOST_WAITING = 32;
/** Requests of all connections that may wait. */
const MOST_WAITING_IN_ALL = 1024;

/** The number of open connections of a server. */
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
  /** The response that is under way, or null. */
  current: ServerResponse | null;
  /** Requests that were sent before their turn. */
  readonly waiting: Exchange[];
  /** Whether it was upgraded: it has no response any more. */
  isUpgraded: boolean;
}

/**
 * Limits the number of connections of an HTTP server, and serves one request of each at a time: what a client pipelines waits for the
 * response before it, and a client that pipelines more than may wait is disconnected. When there are too many connections, one
 * without a request under way is closed: first the oldest that was never answered, then the oldest that is kept alive. If all
 * are in use, the new one is refused with 503. So idle connections cost those who hold them.
 */
export class Connections {
  readonly #most: number;
  /** The oldest first. */
  readonly #open = new Map<Socket, Connection>();
  #waiting = 0;
  #refused = 0;
  #closed = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get open(): number {
    return this.#open.size;
  }

  /** Connections that were refused, and that were closed for a new one or because too many requests waited. */
  get counts(): { readonly refused: number; readonly closed: number } {
    return { refused: this.#refused, closed: this.#closed };
  }

  /**
   * Makes `serve` answer the requests of `server`, which must not listen yet. A refused connection never gets an HTTP parser. A request
   * with `Expect: 100-continue` is served without that response: `expectsContinue` tells whether its body is still to be asked for.
   */
  attach(server: Server, serve: RequestListener): void {
    const parse = server.listeners('connection');
    server.removeAllListeners('connection').on('connection', (socket: Socket) => {
      if (this.#accepts(socket)) for (const listener of parse) listener.call(server, socket);
    });
    for (const event of ['request', 'checkContinue'] as const)
      server.on(event, (request, response) => this.#arrive({ request, response, serve }));
    server.on('checkExpectation', (request, response) =>
      this.#arrive({ request, response, serve: refuseExpectation }),
    );
    server.on(
      'clientError',
      clientErrorHandler((socket) => this.#open.get(socket)?.current ?? null),
    );
  }

  /** An upgraded connection is in use until it is closed. */
  keep(socket: Socket): void {
    const connection = this.#open.get(socket);
    if (connection) connection.isUpgraded = true;
  }

  /** Refuses the connection with 503 when all are in use. */
  #accepts(socket: Socket): boolean {
    if (this.#open.size >= this.#most && !this.#makeRoom()) {
      this.#refused++;
      socket.on('error', () => {}).resume();
      closeWith(socket, 503, `too many connections: ${this.#most} are in use (--max-connections)`);
      return false;
    }
    this.#open.set(socket, { current: null, waiting: [], isUpgraded: false });
    socket.once('close', () => this.#forget(socket));
    return true;
  }

  #arrive(exchange: Exchange): void {
    const { socket } = exchange.request;
    const connection = this.#open.get(socket);
    // Node goes on with what it has read of a connection that was closed.
    if (!connection || socket.destroyed) return;
    if (connection.current === null && connection.waiting.length === 0) {
      this.#begin(connection, exchange);
    } else if (connection.waiting.length >= MOST_WAITING || this.#waiting >= MOST_WAITING_IN_ALL) {
      this.#close(socket);
    } else {
      connection.waiting.push(exchange);
      this.#waiting++;
    }
  }

  #begin(connection: Connection, { request, response, serve }: Exchange): void {
    connection.current = response;
    response.once('close', () => {
      connection.current = null;
      // In a turn of its own: others come between the requests of a burst.
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

/** As Node matches it, which emits `checkContinue` for such a request. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** Whether the client waits for `100 Continue` before it sends the body. Source: RFC 9110, section 10.1.1. */
export function expectsContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1' && CONTINUE.test(headers.expect);
}
