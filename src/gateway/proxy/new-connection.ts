import type { ClientRequest } from 'node:http';
import type { Socket } from 'node:net';

/** A sandbox that does not answer a call to connect within this time is not there. */
const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Gives a request up whose connection is not made in time (the kernel alone would try for minutes), and sees to it that
 * no error of the connection goes unheard.
 */
export function guardConnection(outgoing: ClientRequest): void {
  const watch = (socket: Socket) => {
    // One that is used again was seen here when it was new.
    if (!socket.connecting) return;
    // While a connection goes back to its pool, nobody else listens; the request that it is for learns of it anyway.
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
