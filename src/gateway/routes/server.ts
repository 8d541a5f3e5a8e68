import { AsyncLocalStorage } from 'node:async_hooks';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import {
  clientErrorHandler,
  HOST_IS_MISSING,
  lacksHost,
  refuseExpectation,
} from '../../base/client-errors.ts';
import { refuse } from './answers.ts';
import type { Drain } from './drain.ts';
import type { Router } from './router.ts';

/** Shorter than the daemon's 640 s, so that a proxy always closes an idle connection before its upstream does. */
const KEEP_ALIVE_MS = 620_000;

/**
 * Tells for which client connection the running code works: each connection is an asynchronous context, which Node
 * carries along. So an uncaught error can be charged to the exchange that it was thrown in.
 */
export class ConnectionContext {
  readonly #current = new AsyncLocalStorage<Socket>();

  /** To be called before the server has accepted a connection. */
  follow(server: Server): void {
    // Before the server's own listener, which makes the parser. The context ends with the event of the kernel.
    server.prependListener('connection', (socket: Socket) => this.#current.enterWith(socket));
  }

  /** Closes the connection that the running code works for. Returns false when there is none. */
  endCurrent(): boolean {
    const socket = this.#current.getStore();
    socket?.destroy();
    return socket !== undefined;
  }
}

/** The head of a request must be complete within, in ms. */
const HEAD_TIMEOUT_MS = 20_000;
const CHECK_MS = 5000;
/** TCP probes a client that has sent nothing for so long, so that one that has vanished is noticed; in ms. */
const PROBE_AFTER_MS = 30_000;

/** The one HTTP server, not listening yet. The duration of requests and responses is not limited. */
export function createFrontServer(router: Router, context: ConnectionContext, drain: Drain): Server {
  const server = createServer({
    keepAliveTimeout: KEEP_ALIVE_MS,
    requestTimeout: 0,
    // By default it would be off, too.
    headersTimeout: HEAD_TIMEOUT_MS,
    connectionsCheckingInterval: CHECK_MS,
    requireHostHeader: false,
    keepAlive: true,
    keepAliveInitialDelay: PROBE_AFTER_MS,
    shouldUpgradeCallback: isWebSocket,
  });
  context.follow(server);
  server.on('request', (request, response) => {
    drain.mark(request);
    if (drain.isActive || lacksHost(request)) response.shouldKeepAlive = false;
    if (lacksHost(request)) refuse(response, { code: 400, message: HOST_IS_MISSING });
    else router.request(request, response);
  });
  server.on('clientError', clientErrorHandler());
  server.on('checkExpectation', refuseExpectation);
  server.on('upgrade', (request, socket, head) => router.upgrade(request, socket as Socket, head));
  return server;
}

/** Other upgrades are ignored, as RFC 9110 (section 7.8) allows; so is one with a body, which a WebSocket has not. */
function isWebSocket({ method, headers }: IncomingMessage): boolean {
  const { upgrade, 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return method === 'GET' && upgrade?.toLowerCase() === 'websocket' && length === '0' && coding === undefined;
}
