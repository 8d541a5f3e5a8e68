import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { OnFailure, ReverseProxy, Upstream } from '../proxy/proxy.ts';
import { type RefusalAnswer, refuse } from './answers.ts';

/** The client's side of an exchange: a request or an upgrade. */
export interface Downstream {
  readonly request: IncomingMessage;
  /** This stream is closed when the exchange is over. */
  readonly stream: Writable;
  /** Whether the client follows redirections: it asks for a page. */
  readonly canRedirect: boolean;
  refuse(told: RefusalAnswer, sandboxID?: string): void;
  forward(proxy: ReverseProxy, to: Upstream, onFailure: OnFailure): void;
}

/** Returns a signal that aborts when a stream is closed. */
export function closeSignal(stream: Writable): AbortSignal {
  const closed = new AbortController();
  if (stream.destroyed) closed.abort();
  else stream.once('close', () => closed.abort());
  return closed.signal;
}

/** Returns the client's side of a request. */
export function requestFrom(request: IncomingMessage, response: ServerResponse): Downstream {
  return {
    request,
    stream: response,
    canRedirect: request.method === 'GET' || request.method === 'HEAD',
    refuse(told, sandboxID) {
      refuse(response, told, sandboxID);
      // The rest of the body is read and dropped, because the next request on the connection comes behind it.
      request.unpipe();
      request.resume();
    },
    forward: (proxy, to, onFailure) => proxy.forward(request, response, to, onFailure),
  };
}

/**
 * Returns the client's side of an upgrade. If an earlier request on the connection has no response yet, closes it and returns
 * null.
 */
export function upgradeFrom(request: IncomingMessage, socket: Socket, head: Buffer): Downstream | null {
  // Without a listener, a client that resets the connection would cause an uncaught error.
  socket.on('error', () => {});
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  try {
    response.assignSocket(socket);
  } catch {
    socket.destroy();
    return null;
  }
  return {
    request,
    stream: socket,
    canRedirect: false,
    refuse(told, sandboxID) {
      if (!response.socket) response.assignSocket(socket);
      refuse(response, told, sandboxID);
      // The socket ends at once, so that httpxy does not write to it.
      socket.destroySoon();
    },
    forward(proxy, to, onFailure) {
      response.detachSocket(socket);
      proxy.forwardUpgrade(request, socket, head, to, onFailure);
    },
  };
}
