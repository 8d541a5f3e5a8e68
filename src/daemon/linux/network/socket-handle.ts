import { closeSync } from 'node:fs';
import type { Server, Socket } from 'node:net';
import { EnvdError } from '../../../base/errors.ts';

/** The handle of a Node socket, which its type definitions omit. */
interface Handle {
  readonly fd: number;
  readStop(): void;
}

/** Null for a socket that is closed, or has no descriptor of its own. */
export function handleOf(socket: Socket | null): Handle | null {
  const { _handle: handle } = (socket ?? {}) as { _handle?: Partial<Handle> | null };
  return handle && Number(handle.fd) >= 0 && typeof handle.readStop === 'function'
    ? (handle as Handle)
    : null;
}

/** Closes a descriptor when `job`, which uses it, has settled. */
export function closeAfter(job: Promise<unknown>, descriptor: number): void {
  const close = () => closeSync(descriptor);
  job.then(close, close);
}

/** The descriptor of a listening server. Throws `internal` when it does not listen. */
export function listenerOf(server: Server): number {
  const { _handle: handle } = server as { _handle?: { readonly fd?: number } | null };
  if (handle?.fd === undefined || handle.fd < 0)
    throw new EnvdError('internal', 'the server does not listen');
  return handle.fd;
}

/** Closes a connection at once; the other side gets a reset, unless it has been sent everything and the end. */
export function resetSocket(socket: Socket): void {
  // libuv resets no connection that it is shutting down, and Node never closes such a one: then there is nothing to reset.
  const isShuttingDown = socket.writableEnded && !socket.writableFinished && socket.writableLength === 0;
  if (isShuttingDown) socket.destroy();
  else socket.resetAndDestroy();
}
