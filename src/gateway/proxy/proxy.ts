import type { Agent, ClientRequest, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { createProxyServer } from 'httpxy';
import type { Forwarded } from '../access/forwarded.ts';
import { forwardTrailers, freeWhenSent } from './bodies.ts';
import { rewriteRequest, rewriteResponse, rewriteUpgrade, rewriteUpgradeAnswer } from './headers.ts';
import type { ConnectionPools } from './pools.ts';
import { checkResponse, InvalidResponse } from './response-checks.ts';
import { HEAD_LIMIT, UpstreamConnections } from './upstream-connection.ts';

/** A request is forwarded to this place. */
export interface Upstream {
  readonly sandboxId: string;
  readonly incarnation: string;
  readonly address: string;
  readonly port: number;
  /** The name of this gateway in the request's `Via`. */
  readonly pseudonym: string;
  /** The sandbox gets this as `Host`; null: what the client has sent. */
  readonly host: string | null;
}

/**
 * Is called at most once, when the sandbox cannot be reached, closes the connection, or sends an invalid response
 * (`InvalidResponse`).
 */
export type OnFailure = (error: Error) => void;

interface Exchange {
  readonly onFailure: OnFailure;
  readonly close: boolean;
  /** The request to the sandbox. After a retry, it is the second one. */
  outgoing?: ClientRequest;
  /** The response that is being forwarded. */
  response?: IncomingMessage;
  /** Sends the request once more. It is absent if a repetition could change something twice, or if it has been used. */
  retry?: (() => void) | undefined;
}

/**
 * Forwards requests and responses. httpxy pipes the bodies, with backpressure and aborts. The other modules of `proxy/` add
 * what it lacks (docs/decisions/024-gateway-proxy.md).
 */
export class ReverseProxy {
  readonly #proxy = createProxyServer({});
  readonly #pools: ConnectionPools;
  readonly #forwarded: Forwarded;
  readonly #vary: string;
  readonly #connections: UpstreamConnections;
  readonly #exchanges = new WeakMap<IncomingMessage, Exchange>();

  /**
   * @param limitMs a sandbox must begin its response within this time
   * @param vary names the headers that decide which sandbox answers
   */
  constructor(pools: ConnectionPools, limitMs: number, forwarded: Forwarded, vary: string) {
    this.#vary = vary;
    this.#connections = new UpstreamConnections(limitMs);
    this.#pools = pools;
    this.#forwarded = forwarded;
    this.#proxy.on('proxyReq', (outgoing, request) => {
      this.#limit(outgoing, request);
      forwardTrailers(request, outgoing);
      freeWhenSent(request, outgoing);
    });
    this.#proxy.on('proxyRes', (upstream, request, response) => this.#respond(upstream, request, response));
    this.#proxy.on('proxyReqWs', (outgoing, request, socket) => {
      this.#limit(outgoing, request);
      outgoing.once('upgrade', (upstream) => {
        // After the handshake the client expects no HTTP response.
        this.#exchanges.delete(request);
        rewriteUpgradeAnswer(upstream);
      });
      // A listener of httpxy, which runs later, forwards a refusal as it is then.
      outgoing.once('response', (upstream) =>
        this.#check(upstream, request, () => {
          checkResponse(upstream);
          rewriteResponse(upstream, request, { close: true, vary: this.#vary });
        }),
      );
      bindSockets(outgoing, socket);
    });
    this.#proxy.on('error', (error, request) => request && this.#fail(request, error));
  }

  /** Forwards a request and its response. Sends a request without a body again if a reused connection was closed. */
  forward(request: IncomingMessage, response: ServerResponse, to: Upstream, onFailure: OnFailure): void {
    const close = rewriteRequest(request, this.#added(to));
    const send = (how: { readonly agent: Agent | false; readonly buffer?: Readable }) =>
      void this.#proxy
        .web(request, response, { target: targetOf(to), ssl: outgoingOptions(), ...how })
        .catch((error: Error) => this.#fail(request, error));
    // A retry takes a new connection, because the other idle ones are probably closed too. The body of the request is empty
    // and has been read.
    const retry = () => send({ agent: false, buffer: Readable.from([]) });
    this.#exchanges.set(request, { onFailure, close, ...(isRepeatable(request) && { retry }) });
    send({ agent: this.#pools.of(to.sandboxId, to.incarnation) });
  }

  /** Forwards a WebSocket handshake, then the bytes of both sides until one side closes. */
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

  #added({ pseudonym, host }: Upstream) {
    return { pseudonym, host, forwarded: this.#forwarded };
  }

  /** Ensures that a forwarded request ends, whatever the sandbox sends. */
  #limit(outgoing: ClientRequest, request: IncomingMessage): void {
    this.#connections.limit(outgoing);
    const exchange = this.#exchanges.get(request);
    if (exchange) exchange.outgoing = outgoing;
    // If the response is an upgrade that was not asked for, Node destroys the request and emits no error.
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
      freeWhenSent(upstream, response);
      // httpxy would send the head only together with the first part of the body.
      setImmediate(() => response.destroyed || response.headersSent || response.flushHeaders());
    });
  }

  /** Fails the exchange if `check` throws. Then the rest of the response is not read. */
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
    // An error after a complete response does not concern the client.
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

/** Returns whether a request has no body and changes nothing, so that it may be sent twice (RFC 9110, section 9.2.1). */
function isRepeatable({ method = '', headers }: IncomingMessage): boolean {
  const { 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return ['GET', 'HEAD', 'OPTIONS'].includes(method) && length === '0' && coding === undefined;
}

/** Returns whether the other side has closed the connection, as servers do with idle ones. */
function isClosedByOther(error: Error): boolean {
  return 'code' in error && (error.code === 'ECONNRESET' || error.code === 'EPIPE');
}

/** Returns options for the request to a sandbox, as a new object each time, because httpxy adds more options to it. */
function outgoingOptions() {
  return { maxHeaderSize: HEAD_LIMIT };
}

/** Returns an object instead of a URL, so that no part of the address is parsed as part of a URL. */
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
