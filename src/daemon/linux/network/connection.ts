import type { Socket } from 'node:net';
import { native } from '../system/native.ts';

/** A duplicate of the descriptor of a connection, owned by the caller; null: it is closed, or no connection of TCP. */
export function duplicateConnection(socket: Socket): number | null {
  const { localAddress, localPort, remoteAddress, remotePort } = socket;
  if (socket.destroyed || localAddress === undefined || remoteAddress === undefined) return null;
  return native.duplicateConnection(localAddress, String(localPort), remoteAddress, String(remotePort));
}

/** Closes a connection at once; the other side gets a reset, unless it has been sent everything and the end. */
export function resetSocket(socket: Socket): void {
  // libuv resets no connection that it is shutting down, and Node never closes such a one: then there is nothing to reset.
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (isShuttingDown) socket.destroy();
  else socket.resetAndDestroy();
}
