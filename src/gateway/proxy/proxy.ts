import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { createProxyServer } from 'httpxy';
import type { Forwarded } from '../access/forwarded.ts';
import { forwardTrailers, freeWhenSent } from './bodies.ts';
import { rewriteRequest, rewriteResponse, rewriteUpgrade } from './headers.ts';
import type { ConnectionPools } from './pools.ts';
import { checkResponse, InvalidResponse } from './response-checks.ts';
import { HEAD_LIMIT, UpstreamConnections } from './upstream-connection.ts';

/** Where to forward a request. */
export interface Upstream {
  readonly sandboxId: string;
  readonly incarnation: string;
  readonly address: string;
  readonly port: number;
  /** The name of this gateway in the request's `Via`. */
  readonly pseudonym: string;
}

/** Called at most once: the sandbox cannot be reached, closed the connection, or sent an `InvalidResponse`. */
export type OnFailure = (error: Error) => void;

interface Exchange {
  readonly onFailure: OnFailure;
  readonly close: boolean;
  /** The request to the sandbox: the second one after a retry. */
  outgoing?: ClientRequest;
  /** The response that is being forwarded. */
  response?: IncomingMessage;
  /** Sends the request once more; absent when that could do something twice, or has been done. */
  retry?: (() => void) | undefined;
}

/**
 * Forwards requests and responses. httpxy pipes the bodies, with backpressure and aborts; the rest of `proxy/` adds what
 * it lacks (docs/decisions/024-gateway-proxy.md).
 */
export class ReverseProxy {
  readonly #proxy = createProxyServer({});
  readonly #pools: ConnectionPools;
  readonly #forwarded: Forwarded;
  readonly #vary: string;
  readonly #connections: UpstreamConnections;
  readonly #exchanges = new WeakMap<IncomingMessage, Exchange>();

  /**
   * @param limitMs how long a sandbox may take to respond
   * @param vary the headers that decide which sandbox answers
   */
  constructor(pools: ConnectionPools, limitMs: number, forwarded: Forwarded, vary: string) {
    this.#vary = vary;
    this.#connections = new UpstreamConnections(limitMs);
    this.#pools = pools;
    this.#forwarded = forwarded;
    this.#proxy.on('proxyReq', (outgoing, request) => {
      this.#limit(outgoing, request);
      forwardTrailers(request, outgoing);
      freeWhenSent(outgoing);
    });
    this.#proxy.on('proxyRes', (upstream, request, response) => this.#respond(upstream, request, response));
    this.#proxy.on('proxyReqWs', (outgoing, request, socket) => {
      this.#limit(outgoing, request);
      // After the handshake the client expects no HTTP response.
      outgoing.once('upgrade', () => this.#exchanges.delete(request));
      // httpxy's own listener, which comes later, forwards a refusal unchecked.
      outgoing.once('response', (upstream) => this.#check(upstream, request, () => checkResponse(upstream)));
      bindSockets(outgoing, socket);
    });
    this.#proxy.on('error', (error, request) => request && this.#fail(request, error));
  }

  forward(request: IncomingMessage, response: ServerResponse, to: Upstream, onFailure: OnFailure): void {
    const close = rewriteRequest(request, this.#added(to));
    const send = (how: { readonly agent: Agent | false; readonly buffer?: Readable }) =>
      void this.#proxy
        .web(request, response, { target: targetOf(to), ssl: outgoingOptions(), ...how })
        .catch((error: Error) => this.#fail(request, error));
    // The other idle connections are probably closed, too. The body of the request, which is empty, has been read.
    const retry = () => send({ agent: false, buffer: Readable.from([]) });
    this.#exchanges.set(request, { onFailure, close, ...(isRepeatable(request) && { retry }) });
    send({ agent: this.#pools.of(to.sandboxId, to.incarnation) });
  }

  /** Forwards a WebSocket handshake, then the bytes of both sides until one of them closes. */
  forwardUpgrade(
    request: IncomingMessage,
    socket: Socket,
    head: Buffer,
    to: Upstream,
    onFailure: OnFailure,
  ): void {
    rewriteUpgrade(request, this.#added(to));
    this.#exchanges.set(request, { onFailure, close: true });
    this.#proxy
      .ws(request, socket, { target: targetOf(to), ssl: outgoingOptions() }, head)
      .catch((error: Error) => this.#fail(request, error));
  }

  #added({ pseudonym }: Upstream) {
    return { pseudonym, forwarded: this.#forwarded };
  }

  /** Ensures that a forwarded request ends, whatever the sandbox sends. */
  #limit(outgoing: ClientRequest, request: IncomingMessage): void {
    this.#connections.limit(outgoing);
    const exchange = this.#exchanges.get(request);
    if (exchange) exchange.outgoing = outgoing;
    // Node destroys a request that is upgraded without asking, and emits no error.
    const onClose = () => {
      if (exchange?.outgoing === outgoing)
        this.#fail(request, new InvalidResponse('it is an upgrade that was not asked for'));
    };
    outgoing.once('close', onClose);
    outgoing.once('response', () => {
      this.#connections.responded(outgoing);
      outgoing.off('close', onClose);
    });
  }

  #respond(upstream: IncomingMessage, request: IncomingMessage, response: ServerResponse): void {
    this.#check(upstream, request, () => {
      checkResponse(upstream);
      const exchange = this.#exchanges.get(request);
      if (exchange) exchange.response = upstream;
      rewriteResponse(upstream, request, { close: exchange?.close ?? true, vary: this.#vary });
      forwardTrailers(upstream, response);
      freeWhenSent(response);
      // httpxy would hold the head back until there is a body.
      setImmediate(() => response.destroyed || response.headersSent || response.flushHeaders());
    });
  }

  /** Fails the exchange if `check` throws; the rest of the response is not read. */
  #check(upstream: IncomingMessage, request: IncomingMessage, check: () => void): void {
    try {
      check();
    } catch (error) {
      upstream.destroy();
      this.#fail(request, error instanceof Error ? error : new Error(String(error)));
    }
  }

  #fail(request: IncomingMessage, error: Error): void {
    const exchange = this.#exchanges.get(request);
    // An error behind a complete response does not concern the client.
    if (!exchange || exchange.response?.complete) return;
    const { outgoing, retry } = exchange;
    if (retry && outgoing?.reusedSocket && isClosedByOther(error) && !request.socket.destroyed) {
      exchange.retry = undefined;
      delete exchange.outgoing;
      retry();
      return;
    }
    this.#exchanges.delete(request);
    exchange.onFailure(error);
  }
}

/** Whether a request has no body and changes nothing, so that it may be sent twice (RFC 9110, section 9.2.1). */
function isRepeatable({ method = '', headers }: IncomingMessage): boolean {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return ['GET', 'HEAD', 'OPTIONS'].includes(method) && length === '0' && coding === undefined;
}

/** Whether the other side has closed the connection, as servers do with idle ones. */
function isClosedByOther(error: Error): boolean {
  return 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
}

/** Options of the request to a sandbox. It is a new object each time, because httpxy adds the others to it. */
function outgoingOptions() {
  return { maxHeaderSize: HEAD_LIMIT };
}

/** An object instead of a URL, so that no part of the address is parsed as part of a URL. */
function targetOf({ address, port }: Upstream) {
  return { protocol: 'http:', hostname: address, host: address, port };
}

/** Closes each of two sockets when the other one is closed. */
function bindSockets(outgoing: ClientRequest, socket: Socket): void {
  const abort = () => outgoing.destroy();
  socket.once('close', abort);
  outgoing.once('upgrade', (_response, inner) => {
    socket.off('close', abort);
    socket.once('close', () => inner.destroy());
    inner.once('close', () => socket.destroySoon());
  });
}
