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

/** Returns the number of open connections of a server. */
export function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((_error, count) => resolve(count ?? 0)));
}

/** An open connection. */
interface Connection {
  /** The response in progress, or null. */
  current: ServerResponse | null;
  /** Whether the connection was upgraded and carries no HTTP any more. */
  isUpgraded: boolean;
  /** Null until the parser is attached. */
  pieces: Pieces | null;
}

/**
 * Limits the connections of an HTTP server, and serves one request of each at a time. A pipelined request waits for the
 * response before it, unparsed; a client that pipelines too much is disconnected. When there are too many connections, an idle one is
 * closed: first the oldest that never got a response, then the oldest that is kept alive. If none is idle, the new connection
 * is refused with 503. So a client that holds idle connections locks out nobody but itself.
 */
export class Connections {
  readonly #most: number;
  readonly #headLimit: number;
  /** The oldest connection comes first. */
  readonly #open = new Map<Socket, Connection>();
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

  /** The numbers of connections that were refused, and that were closed for a new one or for what they pipelined. */
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
      connection.pieces = new Pieces(socket, {
        get isBusy() {
          return connection.current !== null;
        },
        overflow: () => void this.#close(socket),
      });
    });
    server.on('upgrade', (_request, socket) => this.#keep(socket as Socket));
    for (const event of ['request', 'checkContinue'] as const)
      server.on(event, (request, response) => this.#begin(request, response, serve));
    server.on('checkExpectation', (request, response) => this.#begin(request, response, refuseExpectation));
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
    return connection !== undefined && !isInUse(connection);
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
    const connection: Connection = { current: null, isUpgraded: false, pieces: null };
    this.#open.set(socket, connection);
    socket.once('close', () => this.#open.delete(socket));
    return connection;
  }

  #begin(request: IncomingMessage, response: ServerResponse, serve: RequestListener): void {
    const connection = this.#open.get(request.socket);
    if (!connection) return;
    const { pieces } = connection;
    pieces?.begin(request);
    connection.current = response;
    response.once('close', () => {
      connection.current = null;
      // A turn of the event loop of its own lets other connections come between the requests of a burst.
      if (pieces?.isWaiting) setImmediate(() => pieces.next());
    });
    serve(request, response);
  }

  #makeRoom(): boolean {
    let idle: Socket | null = null;
    for (const [socket, connection] of this.#open) {
      if (isInUse(connection) || connection.isUpgraded) continue;
      if (socket.bytesWritten === 0) return this.#close(socket);
      idle ??= socket;
    }
    return idle !== null && this.#close(idle);
  }

  #close(socket: Socket): true {
    this.#open.delete(socket);
    this.#closed++;
    socket.destroy();
    return true;
  }
}

/** Whether a request of the connection is being served or waits. */
function isInUse({ current, pieces }: Connection): boolean {
  return current !== null || pieces?.isWaiting === true;
}

/** Node emits `checkContinue` for requests whose header matches this. */
const CONTINUE = /(?:^|\W)100-continue(?:$|\W)/i;

/** Returns whether the client waits for `100 Continue` before it sends the body. Source: RFC 9110, section 10.1.1. */
export function expectsContinue({ headers, httpVersion }: IncomingMessage): boolean {
  return headers.expect !== undefined && httpVersion === '1.1' && CONTINUE.test(headers.expect);
}
