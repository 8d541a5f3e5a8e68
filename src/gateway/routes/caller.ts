import { type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Writable } from 'node:stream';
import type { Carrier, Destination, OnFailure } from '../proxy/proxy.ts';
import { refuse } from './answers.ts';

/** Somebody who waits for an answer: to a request, or to an upgrade of his connection. */
export interface Caller {
  readonly request: IncomingMessage;
  /** What is closed when the exchange is over. */
  readonly exchange: Writable;
  refuse(code: number, message: string, sandboxID?: string): void;
  carry(carrier: Carrier, to: Destination, onFailure: OnFailure): void;
}

export function requester(request: IncomingMessage, response: ServerResponse): Caller {
  return {
    request,
    exchange: response,
    refuse(code, message, sandboxID) {
      refuse(response, code, message, sandboxID);
      // What is left of a body that a sandbox has stopped to take is in the way of the next request.
      request.unpipe();
      request.resume();
    },
    carry: (carrier, to, onFailure) => carrier.carry(request, response, to, onFailure),
  };
}

/** Null when the connection was closed: an earlier request on it still waits for its answer. */
export function upgrader(request: IncomingMessage, socket: Socket, head: Buffer): Caller | null {
  // Nobody else listens yet, and a client may go at any time.
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
    exchange: socket,
    refuse(code, message, sandboxID) {
      if (!response.socket) response.assignSocket(socket);
      refuse(response, code, message, sandboxID);
      // At once: whoever else would write to it sees that it has ended.
      socket.destroySoon();
    },
    carry(carrier, to, onFailure) {
      response.detachSocket(socket);
      carrier.carryUpgrade(request, socket, head, to, onFailure);
    },
  };
}
