import type { ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import { InvalidResponse } from './response-checks.ts';

/** TCP probes a sandbox that has sent nothing for this time, in ms. */
const PROBE_AFTER_MS = 30_000;
/** A sandbox must accept a connection within this time, in ms. */
const CONNECT_TIMEOUT_MS = 10_000;
/** The head of a response, with provisional responses before it, may have this many bytes. */
export const HEAD_LIMIT = 64 * 1024;

/** A request whose response has not begun, with the number of bytes that the connection had read before. */
interface Pending {
  request: ClientRequest | null;
  start: number;
}

/**
 * Limits the time to connect to a sandbox, the time until its response, and the bytes before its response, because a sandbox
 * could send provisional responses for ever. A connection has the same listeners for all requests that it carries.
 */
export class UpstreamConnections {
  readonly #pending = new WeakMap<Socket, Pending>();
  readonly #limitMs: number;

  /** @param limitMs a response must begin within this time, which does not count while the request is still being sent */
  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** Destroys the request when it exceeds a limit. Must be called when the request is sent. */
  limit(outgoing: ClientRequest): void {
    const assign = (socket: Socket) => {
      const pending = this.#pending.get(socket) ?? this.#open(socket, outgoing);
      pending.request = outgoing;
      pending.start = socket.bytesRead;
      limitSilence(outgoing, socket, this.#limitMs);
    };
    if (outgoing.socket) assign(outgoing.socket);
    else outgoing.once('socket', assign);
  }

  /** Ends the limit of the head. Must be called when the response has begun. */
  responded({ socket }: ClientRequest): void {
    const pending = socket && this.#pending.get(socket);
    if (pending) pending.request = null;
  }

  #open(socket: Socket, outgoing: ClientRequest): Pending {
    // Without a listener, an error while the connection returns to the pool would be uncaught.
    socket.on('error', () => {});
    // With probes, TCP notices that a sandbox has vanished, even while a stream has nothing to send.
    socket.setKeepAlive(true, PROBE_AFTER_MS);
    if (socket.connecting) limitConnect(socket, outgoing);
    const pending: Pending = { request: outgoing, start: 0 };
    this.#pending.set(socket, pending);
    const check = () => {
      const { request, start } = pending;
      if (request === null || socket.bytesRead - start <= HEAD_LIMIT) return;
      // On a reused connection, this listener runs before Node's parser, which may find the end of the head in the same data.
      queueMicrotask(() => {
        if (pending.request === request) request.destroy(tooLong('its head', HEAD_LIMIT));
      });
    };
    socket.on('data', check);
    outgoing.once('upgrade', () => socket.off('data', check));
    return pending;
  }
}

/** Destroys a request without progress, of which the sandbox neither reads more nor responds. */
function limitSilence(outgoing: ClientRequest, socket: Socket, limitMs: number): void {
  let sent = socket.bytesWritten;
  const timer = setInterval(() => {
    // A request that has ended needs no drain, although its last bytes may wait.
    const waits = outgoing.writableEnded || outgoing.writableNeedDrain;
    if (waits && socket.bytesWritten === sent)
      outgoing.destroy(new Error(`no response within ${limitMs / 1000} s`));
    sent = socket.bytesWritten;
  }, limitMs);
  const stop = () => clearInterval(timer);
  for (const event of ['response', 'upgrade', 'close']) outgoing.once(event, stop);
}

function limitConnect(socket: Socket, outgoing: ClientRequest): void {
  // Without this limit, the kernel would try for minutes.
  const timer = setTimeout(() => {
    outgoing.destroy(new Error(`no connection within ${CONNECT_TIMEOUT_MS / 1000} s`));
  }, CONNECT_TIMEOUT_MS);
  const stop = () => clearTimeout(timer);
  socket.once('connect', stop);
  socket.once('close', stop);
}

/**
 * Destroys a request whose response is longer than `limit` bytes, with heads and framing. Must be called before the request
 * has a connection, which must be new.
 */
export function limitResponse(outgoing: ClientRequest, limit: number): void {
  outgoing.once('socket', (socket) => {
    socket.on('data', () => {
      if (socket.bytesRead > limit) outgoing.destroy(tooLong('it', limit));
    });
  });
}

function tooLong(what: string, limit: number): InvalidResponse {
  return new InvalidResponse(`${what} is longer than ${limit / 1024} KiB`);
}
