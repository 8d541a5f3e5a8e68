import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { hostFault } from '../../base/http/client-errors.ts';
import { Connections, expectsContinue } from '../../base/http/connections.ts';
import { isWebSocket } from '../../base/http/websocket.ts';
import { type RefusalAnswer, refuse } from './answers.ts';
import { requestFrom, upgradeFrom } from './downstream.ts';
import { Drain } from './drain.ts';

/**
 * An idle connection is closed after this time. It is shorter than the daemon's, so that a proxy always closes it before its
 * upstream does.
 */
const KEEP_ALIVE_MS = 620_000;

/**
 * Knows which connection the running code serves, so that an uncaught error ends only the connection that caused it. Each
 * connection has an asynchronous context, which Node passes on to callbacks.
 */
class ConnectionContext {
  readonly #current = new AsyncLocalStorage<Socket>();

  /** Must be called before the server accepts connections. */
  follow(server: Server): void {
    // This listener must run before the server's own one, which creates the parser, so that the parser has the context. The
    // context ends with the callback of the kernel's event, so it cannot leak into other connections.
    server.prependListener('connection', (socket: Socket) => this.#current.enterWith(socket));
  }

  /** Closes the connection that the running code serves. Returns false if there is none. */
  endCurrent(): boolean {
    const socket = this.#current.getStore();
    socket?.destroy();
    return socket !== undefined;
  }
}

/** The head of a request may have this many bytes. Sandboxes usually accept less, and then refuse the request themselves. */
const HEAD_BYTES = 40 * 1024;
/** The head of a request must be complete within this time, in ms. */
const HEAD_TIMEOUT_MS = 20_000;
/** Node checks this limit at this interval, in ms. */
const CHECK_MS = 5000;
/** TCP probes a client that was silent for this time, in ms, to notice that it has vanished. */
const PROBE_AFTER_MS = 30_000;

export interface Handler {
  request(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
}

const STARTING: RefusalAnswer = {
  code: 503,
  message: 'the gateway is starting: its registry is not available yet',
  retryAfter: 1,
};
/** Refuses requests while the registry is not available. */
const REFUSING: Handler = {
  request: (request, response) => requestFrom(request, response).refuse(STARTING),
  upgrade: (request, socket, head) => upgradeFrom(request, socket, head)?.refuse(STARTING),
};

/**
 * The HTTP server, which does not listen yet. Only heads have a time limit, because bodies and streams may last for any time.
 */
export class Front {
  readonly server: Server;
  readonly drain = new Drain();
  readonly #context = new ConnectionContext();
  /** The server itself forgets connections that ask for an upgrade. */
  readonly #upgraded = new Set<Socket>();
  #handler: Handler = REFUSING;

  /** @param maxConnections the number of connections that clients may have */
  constructor(maxConnections: number) {
    this.server = createServer({
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: HEAD_BYTES,
      requestTimeout: 0,
      // Without this limit Node applies `requestTimeout`, which is off.
      headersTimeout: HEAD_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_MS,
      requireHostHeader: false,
      keepAlive: true,
      keepAliveInitialDelay: PROBE_AFTER_MS,
      shouldUpgradeCallback: isWebSocket,
    });
    this.#context.follow(this.server);
    const connections = new Connections(maxConnections, HEAD_BYTES);
    connections.attach(this.server, (request, response) => this.#onRequest(request, response));
    this.server.on('upgrade', (request, stream, head) => {
      const socket = stream as Socket;
      connections.keep(socket);
      this.#upgraded.add(socket);
      socket.once('close', () => this.#upgraded.delete(socket));
      const fault = hostFault(request);
      if (fault === null) this.#handler.upgrade(request, socket, head);
      else upgradeFrom(request, socket, head)?.refuse({ code: 400, message: fault });
    });
  }

  #onRequest(request: IncomingMessage, response: ServerResponse): void {
    this.drain.mark(request);
    const fault = hostFault(request);
    if (this.drain.isActive || fault !== null) response.shouldKeepAlive = false;
    if (fault !== null) {
      refuse(response, { code: 400, message: fault });
      return;
    }
    if (expectsContinue(request)) response.writeContinue();
    this.#handler.request(request, response);
  }

  /** Lets `handler` answer later requests. Before this call, every request is refused with 503. */
  serve(handler: Handler): void {
    this.#handler = handler;
  }

  /** Closes the connection that the running code serves. Returns false if there is none. */
  endCurrent(): boolean {
    return this.#context.endCurrent();
  }

  /** Stops listening and closes all connections, because streams could last for ever. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    for (const socket of this.#upgraded) socket.destroy();
    await closed;
  }
}
