import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { createProxyServer } from 'httpxy';
import { giveBackWhenSent } from './bulk.ts';
import { onceConnected } from './connect-timeout.ts';
import { forwardRequest, forwardResponse, forwardUpgrade } from './headers.ts';
import type { Pools } from './pools.ts';
import { forwardTrailers } from './trailers.ts';

/** Where a request goes. */
export interface Destination {
  readonly sandboxId: string;
  readonly address: string;
  readonly port: number;
}

/** Called when the sandbox cannot be reached or has broken off before its answer. */
export type OnFailure = (error: Error) => void;

interface Passage {
  readonly onFailure: OnFailure;
  readonly close: boolean;
}

/**
 * Carries requests and answers between clients and sandboxes: a library moves the bytes, with backpressure, and passes
 * aborts on; here is what it leaves to its user.
 */
export class Carrier {
  readonly #proxy = createProxyServer({});
  readonly #pools: Pools;
  readonly #passages = new WeakMap<IncomingMessage, Passage>();

  constructor(pools: Pools) {
    this.#pools = pools;
    this.#proxy.on('proxyReq', (outgoing, request) => {
      onceConnected(outgoing);
      forwardTrailers(request, outgoing);
      giveBackWhenSent(outgoing);
    });
    this.#proxy.on('proxyRes', (answer, request, response) => {
      forwardResponse(answer, this.#passages.get(request)?.close ?? false);
      forwardTrailers(answer, response);
      giveBackWhenSent(response);
      // A head that is not followed by a body for now is not held back for it.
      setImmediate(() => response.destroyed || response.headersSent || response.flushHeaders());
    });
    this.#proxy.on('proxyReqWs', (outgoing, request, socket) => {
      // From the handshake on there is nothing left to answer.
      outgoing.once('upgrade', () => this.#passages.delete(request));
      bindSockets(outgoing, socket);
    });
    this.#proxy.on('error', (error, request) => {
      if (request) this.#passages.get(request)?.onFailure(error);
    });
  }

  carry(request: IncomingMessage, response: ServerResponse, to: Destination, onFailure: OnFailure): void {
    this.#passages.set(request, { onFailure, close: forwardRequest(request) });
    const agent = this.#pools.of(to.sandboxId);
    void this.#proxy.web(request, response, { target: targetOf(to), agent });
  }

  /** A WebSocket: after the handshake both sides send what they like until one of them goes. */
  carryUpgrade(
    request: IncomingMessage,
    socket: Socket,
    head: Buffer,
    to: Destination,
    onFailure: OnFailure,
  ): void {
    forwardUpgrade(request);
    this.#passages.set(request, { onFailure, close: true });
    void this.#proxy.ws(request, socket, { target: targetOf(to) }, head);
  }
}

/** What the library takes as the place to go to; an object, so that no address is parsed as part of a URL. */
function targetOf({ address, port }: Destination) {
  return { protocol: 'http:', hostname: address, host: address, port };
}

/** Two sockets live as long as each other, however one of them ends. */
function bindSockets(outgoing: ClientRequest, socket: Socket): void {
  onceConnected(outgoing);
  const giveUp = () => outgoing.destroy();
  socket.once('close', giveUp);
  outgoing.once('upgrade', (_answer, inner) => {
    socket.off('close', giveUp);
    socket.once('close', () => inner.destroy());
    inner.once('close', () => socket.destroySoon());
  });
}
