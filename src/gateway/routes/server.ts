import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { hostFault } from '../../base/http/client-errors.ts';
import { Connections, expectsContinue } from '../../base/http/connections.ts';
import { type RefusalAnswer, refuse } from './answers.ts';
import { requestFrom, upgradeFrom } from './downstream.ts';
import { Drain } from './drain.ts';

/** Shorter than the daemon's 640 s, so that a proxy always closes an idle connection before its upstream does. */
const KEEP_ALIVE_MS = 620_000;

/**
 * Knows which client connection the current code serves: each connection is an asynchronous context, which Node carries
 * along. So an uncaught error can be charged to the exchange that threw it.
 */
class ConnectionContext {
  readonly #current = new AsyncLocalStorage<Socket>();

  /** Call it before the server accepts connections. */
  follow(server: Server): void {
    // The server's own listener, which makes the parser, must run in the context. That ends with the event of the kernel.
    server.prependListener('connection', (socket: Socket) => this.#current.enterWith(socket));
  }

  /** Closes the connection that the current code serves. Returns false when there is none. */
  endCurrent(): boolean {
    const socket = this.#current.getStore();
    socket?.destroy();
    return socket !== undefined;
  }
}

/**
 * The most bytes of a request's head. A sandbox usually takes 16 KiB, but what a proxy in front asks has the whole head of the request
 * and its target again.
 */
const HEAD_BYTES = 40 * 1024;
/** The time for a request's head to be complete, in ms. */
const HEAD_TIMEOUT_MS = 20_000;
const CHECK_MS = 5000;
/** TCP probes a client that has been silent for this long, so that a vanished one is noticed; in ms. */
const PROBE_AFTER_MS = 30_000;

/** Answers requests. */
export interface Handler {
  request(request: IncomingMessage, response: ServerResponse): void;
  upgrade(request: IncomingMessage, socket: Socket, head: Buffer): void;
}

const STARTING: RefusalAnswer = {
  code: 503,
  message: 'the gateway starts: its registry is not there yet',
  retryAfter: 1,
};
/** Answers while the registry is not there yet. */
const REFUSING: Handler = {
  request: (request, response) => requestFrom(request, response).refuse(STARTING),
  upgrade: (request, socket, head) => upgradeFrom(request, socket, head)?.refuse(STARTING),
};

/** The one HTTP server, not listening yet. Requests and responses may take any time. */
export class Front {
  readonly server: Server;
  readonly drain = new Drain();
  readonly #context = new ConnectionContext();
  #handler: Handler = REFUSING;

  /** @param maxConnections that clients may have */
  constructor(maxConnections: number) {
    this.server = createServer({
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: HEAD_BYTES,
      requestTimeout: 0,
      // Without this limit Node takes that of the whole request, which is none.
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

  /** From now on `handler` answers; before, every request is refused with 503. */
  serve(handler: Handler): void {
    this.#handler = handler;
  }

  /** Closes the client connection that the running code works for. Returns false when there is none. */
  endCurrent(): boolean {
    return this.#context.endCurrent();
  }

  /** Closes all connections, too: streams would go on for ever. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeAllConnections();
    await closed;
  }
}

/** Other upgrades are ignored, as RFC 9110 (section 7.8) allows; so is one with a body, which a WebSocket never has. */
function isWebSocket({ method, headers }: IncomingMessage): boolean {
  const { upgrade, 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return method === 'GET' && upgrade?.toLowerCase() === 'websocket' && length === '0' && coding === undefined;
}
