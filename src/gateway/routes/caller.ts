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
    refuse: (code, message, sandboxID) => refuse(response, code, message, sandboxID),
    carry: (carrier, to, onFailure) => carrier.carry(request, response, to, onFailure),
  };
}

export function upgrader(request: IncomingMessage, socket: Socket, head: Buffer): Caller {
  // Nobody else listens yet, and a client may go at any time.
  socket.on('error', () => {});
  return {
    request,
    exchange: socket,
    refuse(code, message, sandboxID) {
      const response = new ServerResponse(request);
      response.shouldKeepAlive = false;
      response.assignSocket(socket);
      response.once('finish', () => socket.end());
      refuse(response, code, message, sandboxID);
    },
    carry: (carrier, to, onFailure) => carrier.carryUpgrade(request, socket, head, to, onFailure),
  };
}
