import type { ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import { InvalidResponse } from './response-checks.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** The most bytes until the head of a response is complete, provisional responses included. */
const HEAD_LIMIT = 64 * 1024;

/** Destroys a request whose connection is not made in time; the kernel would try for minutes. */
export function limitConnect(outgoing: ClientRequest): void {
  const watch = (socket: Socket) => {
    // A connection of the pool was watched when it was new.
    if (!socket.connecting) return;
    // Without a listener, an error while the connection returns to the pool would be uncaught.
    socket.on('error', () => {});
    const timer = setTimeout(() => {
      outgoing.destroy(new Error(`no connection within ${CONNECT_TIMEOUT_MS / 1000} s`));
    }, CONNECT_TIMEOUT_MS);
    const stop = () => clearTimeout(timer);
    socket.once('connect', stop);
    socket.once('close', stop);
  };
  if (outgoing.socket) watch(outgoing.socket);
  else outgoing.once('socket', watch);
}

/** Destroys a request whose response does not begin within `HEAD_LIMIT`: provisional responses can go on for ever. */
export function limitHead(outgoing: ClientRequest): void {
  limitBytes(outgoing, HEAD_LIMIT, 'its head', ['response', 'upgrade']);
}

/** Destroys a request whose response is longer than `limit` bytes, heads and framing included. */
export function limitResponse(outgoing: ClientRequest, limit: number): void {
  limitBytes(outgoing, limit, 'it', []);
}

/** @param ends events of the request that end the counting */
function limitBytes(outgoing: ClientRequest, limit: number, what: string, ends: readonly string[]): void {
  const watch = (socket: Socket) => {
    const before = socket.bytesRead;
    let counts = true;
    const check = () => {
      if (!counts || socket.bytesRead - before <= limit) return;
      outgoing.destroy(new InvalidResponse(`${what} is longer than ${limit / 1024} KiB`));
    };
    const stop = () => {
      counts = false;
      socket.off('data', check);
    };
    socket.on('data', check);
    for (const event of [...ends, 'close']) outgoing.once(event, stop);
  };
  if (outgoing.socket) watch(outgoing.socket);
  else outgoing.once('socket', watch);
}
