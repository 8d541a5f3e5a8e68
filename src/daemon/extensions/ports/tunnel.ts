import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { finished } from 'node:stream/promises';
import { limited } from '../../../base/abort.ts';
import { EnvdError, isSystemError, messageOf } from '../../../base/errors.ts';
import type { OpenedSocket, WebSocketRoute } from '../../http/websocket/upgrades.ts';
import { portNamed } from './ports-queries.ts';

/** How long the guest may take to accept a connection, in milliseconds: the queue of a listener may be full. */
const CONNECT_MS = 5000;
const LOCALHOST = ['127.0.0.1', '::1'];

/**
 * Carries bytes between a WebSocket and a port of localhost. The end of either ends both, after what was sent before it. An empty
 * message ends the direction to the port alone. The port of the daemon is refused: a client that has the token would only lead its connections in a circle.
 */
export function tunnelRoute(ownPort: number): WebSocketRoute {
  return {
    url: '/ports/:port/tunnel',
    path: /^\/ports\/([^/]+)\/tunnel$/,
    protocol: 'envd.tunnel',
    async serve({ connection: { stream }, call, params: [named = ''] }: OpenedSocket) {
      const port = portNamed(named);
      if (port === ownPort)
        throw new EnvdError('permission_denied', `port ${port} is the daemon's own: call it instead`);
      const target = await connectTo(port, call.signal);
      call.response.once('close', () => target.destroy());
      if (call.isAborted) target.destroy();
      stream.pipe(target).pipe(stream);
      stream.on('data', (message: string | Buffer) => message.length === 0 && target.end());
      try {
        await finished(target, { writable: false });
        await finished(stream, { readable: false });
      } catch (error) {
        if (!call.isAborted) throw new EnvdError('aborted', `the connection was broken: ${messageOf(error)}`);
      }
    },
  };
}

/** Throws `not_found` when nothing listens there, and `deadline_exceeded`. */
async function connectTo(port: number, signal: AbortSignal): Promise<Socket> {
  for (const host of LOCALHOST) {
    const target = connect({ host, port, noDelay: true });
    target.on('error', () => {});
    try {
      await limited(CONNECT_MS, signal, (limit) => once(target, 'connect', { signal: limit }));
      return target;
    } catch (error) {
      target.destroy();
      // The guest may have no IPv6.
      if (isSystemError(error, 'ECONNREFUSED', 'EADDRNOTAVAIL', 'EAFNOSUPPORT', 'ENETUNREACH')) continue;
      if (isSystemError(error)) throw error;
      throw new EnvdError('deadline_exceeded', `port ${port} accepts no connection within ${CONNECT_MS} ms`);
    }
  }
  throw new EnvdError('not_found', `nothing listens at port ${port} of localhost`);
}
