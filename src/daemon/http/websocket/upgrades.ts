import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { parse } from 'node:querystring';
import type { FastifyInstance } from 'fastify';
import { EnvdError, HttpError } from '../../../base/errors.ts';
import { closeWith } from '../../../base/http/client-errors.ts';
import type { Connections } from '../../../base/http/connections.ts';
import { isWebSocket } from '../../../base/http/websocket.ts';
import { loadedOnce } from '../../../base/loaded-once.ts';
import type { Quota } from '../../../base/quota.ts';
import { Semaphore } from '../../../base/semaphore.ts';
import type { Guest } from '../../services/guest/guest.ts';
import { admitsUpgrade } from '../admission/admission.ts';
import type { CallLog } from '../admission/call-log.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { recordFailure, statusOf } from '../admission/errors.ts';
import type { StreamPlaces } from '../protocol/stream-places.ts';
import type { WebSocketConnection } from './connection.ts';

/** The most WebSockets at a time. Each may keep a message and what waits to be sent. */
const MOST_SOCKETS = 256;

/** An operation that a client uses by a WebSocket. */
export interface WebSocketRoute {
  /** Fastify's pattern of the path. */
  readonly url: string;
  /** Its parameters are those of the groups. */
  readonly path: RegExp;
  /** The subprotocol that is chosen if the client offers it. */
  readonly protocol: string;
  /** Resolves when the connection is to be closed; an error is told to the client. */
  serve(opened: OpenedSocket): Promise<void>;
}

/** A WebSocket that a client has opened. */
export interface OpenedSocket {
  readonly connection: WebSocketConnection;
  readonly call: CallScope;
  /** The groups of the path, and the query. */
  readonly params: readonly string[];
  readonly query: Readonly<Record<string, unknown>>;
}

export interface UpgradeBounds {
  readonly connections: Connections;
  readonly places: StreamPlaces;
  readonly unread: Quota;
}

/**
 * Accepts WebSockets. A request that is not admitted is none: it goes the way of all requests, which answers it with its error.
 * The library is loaded for the first one.
 */
export class Upgrades {
  readonly #routes: readonly WebSocketRoute[];
  readonly #guest: Guest;
  readonly #calls: CallLog;
  readonly #bounds: UpgradeBounds;
  readonly #free = new Semaphore(MOST_SOCKETS);
  readonly #handshake = loadedOnce(async () => {
    const { createHandshake } = await import('./handshake.ts');
    return createHandshake(this.#routes.map(({ protocol }) => protocol));
  });

  constructor(routes: readonly WebSocketRoute[], guest: Guest, calls: CallLog, bounds: UpgradeBounds) {
    this.#routes = routes;
    this.#guest = guest;
    this.#calls = calls;
    this.#bounds = bounds;
  }

  /** Registers the paths for other requests, which are told to upgrade. */
  register(app: FastifyInstance): void {
    for (const { url, protocol } of this.#routes)
      app.get(url, (_request, reply) => {
        reply.headers({ upgrade: 'websocket', connection: 'Upgrade' });
        throw new HttpError(
          426,
          `${url} is a WebSocket: open one with the subprotocol ${protocol}, on a connection of its own`,
        );
      });
  }

  /** Tells whether the connection of a request becomes a WebSocket: Node asks for each request with the header `Upgrade`. */
  readonly accepts = (request: IncomingMessage): boolean =>
    isWebSocket(request) &&
    this.#bounds.connections.isIdle(request.socket) &&
    this.#find(request) !== null &&
    admitsUpgrade(request, this.#guest);

  /** Serves an accepted WebSocket until it is closed. */
  readonly serve = (request: IncomingMessage, socket: Socket, head: Buffer): void => {
    const found = this.#find(request);
    // `accepts` has found it.
    if (found === null) return;
    const { route, params } = found;
    // Until the library listens.
    socket.on('error', () => {});
    const call = this.#calls.begin(`GET ${route.url}`, request, new UpgradedResponse(request, socket));
    call.isTrusted = true;
    call.isUpgraded = true;
    void this.#run(route, params, call, head);
  };

  async #run(route: WebSocketRoute, params: string[], call: CallScope, head: Buffer): Promise<void> {
    const { socket, url = '' } = call.request;
    let connection: WebSocketConnection | null = null;
    try {
      this.#take(call);
      const { unread } = this.#bounds;
      const shakeHands = await this.#handshake();
      connection = await call.race(shakeHands({ request: call.request, head }, unread));
      const query = parse(url.slice(url.indexOf('?') + 1 || url.length));
      await call.race(route.serve({ connection, call, params, query }));
      connection.close(null);
    } catch (error) {
      // That a client leaves is no failure, however a write notices it.
      if (socket.destroyed || connection?.isClosing) return;
      recordFailure(call, error);
      if (connection) connection.close(error);
      else {
        const { code, message } = statusOf(error);
        call.response.statusCode = code;
        closeWith(socket, code, message);
      }
    }
  }

  /** Takes a place until the connection is closed. */
  #take({ response }: CallScope): void {
    this.#bounds.places.enter(response);
    if (!this.#free.takeUntilClosed(response)) {
      const text = `too many WebSockets: ${MOST_SOCKETS} are open, close some, or try again later`;
      throw new EnvdError('resource_exhausted', text);
    }
  }

  #find({ url = '' }: IncomingMessage): { route: WebSocketRoute; params: string[] } | null {
    const [path = ''] = url.split('?', 1);
    for (const route of this.#routes) {
      const match = route.path.exec(path);
      if (match) return { route, params: match.slice(1) };
    }
    return null;
  }
}

/** Stands for the response of a request whose connection carries another protocol: it is closed with the connection. */
class UpgradedResponse extends ServerResponse {
  constructor(request: IncomingMessage, socket: Socket) {
    super(request);
    this.statusCode = 101;
    socket.once('close', () => this.emit('close'));
  }
}
