import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { createProxyServer } from 'httpxy';
import { giveBackWhenSent } from './bulk.ts';
import { forwardRequest, forwardResponse, forwardUpgrade } from './headers.ts';
import { guardConnection } from './new-connection.ts';
import type { Pools } from './pools.ts';
import { forwardTrailers } from './trailers.ts';
import { checkAnswer, limitHead, UnusableAnswer } from './unusable.ts';

/** Where a request goes. */
export interface Destination {
  readonly sandboxId: string;
  readonly address: string;
  readonly port: number;
}

/** Called once at most: the sandbox cannot be reached, has broken off, or its answer cannot be passed on. */
export type OnFailure = (error: Error) => void;

interface Passage {
  readonly onFailure: OnFailure;
  readonly close: boolean;
  /** What is being passed on. */
  answer?: IncomingMessage;
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
      this.#watch(outgoing, request);
      forwardTrailers(request, outgoing);
      giveBackWhenSent(outgoing);
    });
    this.#proxy.on('proxyRes', (answer, request, response) => this.#answer(answer, request, response));
    this.#proxy.on('proxyReqWs', (outgoing, request, socket) => {
      this.#watch(outgoing, request);
      // From the handshake on there is nothing left to answer.
      outgoing.once('upgrade', () => this.#passages.delete(request));
      // Before the library's own listener, which writes what is refused here as it came.
      outgoing.once('response', (answer) => this.#pass(answer, request, () => checkAnswer(answer)));
      bindSockets(outgoing, socket);
    });
    this.#proxy.on('error', (error, request) => request && this.#fail(request, error));
  }

  carry(request: IncomingMessage, response: ServerResponse, to: Destination, onFailure: OnFailure): void {
    this.#passages.set(request, { onFailure, close: forwardRequest(request) });
    const agent = this.#pools.of(to.sandboxId);
    this.#proxy
      .web(request, response, { target: targetOf(to), agent })
      .catch((error: Error) => this.#fail(request, error));
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
    this.#proxy
      .ws(request, socket, { target: targetOf(to) }, head)
      .catch((error: Error) => this.#fail(request, error));
  }

  /** Sees to it that a request ends, whatever the sandbox does. */
  #watch(outgoing: ClientRequest, request: IncomingMessage): void {
    guardConnection(outgoing);
    limitHead(outgoing);
    // One that is upgraded without being asked to ends without an error.
    const end = () => this.#fail(request, new UnusableAnswer('it is an upgrade that was not asked for'));
    outgoing.once('close', end);
    outgoing.once('response', () => outgoing.off('close', end));
  }

  #answer(answer: IncomingMessage, request: IncomingMessage, response: ServerResponse): void {
    this.#pass(answer, request, () => {
      checkAnswer(answer);
      const passage = this.#passages.get(request);
      if (passage) passage.answer = answer;
      forwardResponse(answer, request, passage?.close ?? true);
      forwardTrailers(answer, response);
      giveBackWhenSent(response);
      // A head that is not followed by a body for now is not held back for it.
      setImmediate(() => response.destroyed || response.headersSent || response.flushHeaders());
    });
  }

  /** An answer that cannot be passed on fails the exchange, and is not read to its end. */
  #pass(answer: IncomingMessage, request: IncomingMessage, pass: () => void): void {
    try {
      pass();
    } catch (error) {
      answer.destroy();
      this.#fail(request, error instanceof Error ? error : new Error(String(error)));
    }
  }

  #fail(request: IncomingMessage, error: Error): void {
    const passage = this.#passages.get(request);
    // What is wrong behind an answer's end is not the client's.
    if (!passage || passage.answer?.complete) return;
    this.#passages.delete(request);
    passage.onFailure(error);
  }
}

/** What the library takes as the place to go to; an object, so that no address is parsed as part of a URL. */
function targetOf({ address, port }: Destination) {
  return { protocol: 'http:', hostname: address, host: address, port };
}

/** Two sockets live as long as each other, however one of them ends. */
function bindSockets(outgoing: ClientRequest, socket: Socket): void {
  const giveUp = () => outgoing.destroy();
  socket.once('close', giveUp);
  outgoing.once('upgrade', (_answer, inner) => {
    socket.off('close', giveUp);
    socket.once('close', () => inner.destroy());
    inner.once('close', () => socket.destroySoon());
  });
}
