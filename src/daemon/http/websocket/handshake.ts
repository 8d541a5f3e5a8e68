import type { IncomingMessage } from 'node:http';
import { createWebSocketStream, WebSocketServer } from 'ws';
import { EnvdError } from '../../../base/errors.ts';
import type { Quota } from '../../../base/quota.ts';
import { WebSocketConnection } from './connection.ts';

/**
 * Compression is off: it would keep 300 KiB for each connection, and unpack a small message into a large one. A message beyond its
 * limit, or in too many pieces, ends the connection; so do 60 pings whose answers the client does not read. Each message, and each
 * ping, has a turn of the event loop of its own: one read may bring ten thousand.
 */
const LIMITS = {
  perMessageDeflate: false,
  allowSynchronousEvents: false,
  maxPayload: 128 * 1024,
  maxFragments: 256,
  maxBufferedChunks: 1024,
  maxPendingAutoPongs: 60,
  closeTimeout: 10_000,
};

/** A request for a WebSocket. */
interface Asked {
  readonly request: IncomingMessage;
  /** What the client has sent after the request. */
  readonly head: Buffer;
}

/** Opens a WebSocket. Throws `invalid_argument` for a request that asks for it wrongly. Never settles when the client leaves. */
export type Handshake = (asked: Asked, unread: Quota) => Promise<WebSocketConnection>;

/** Chooses the first of `protocols` that a client offers. */
export function createHandshake(protocols: readonly string[]): Handshake {
  const server = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    ...LIMITS,
    handleProtocols: (offered) => protocols.find((one) => offered.has(one)) ?? false,
  });
  const refusals = new WeakMap<object, (reason: EnvdError) => void>();
  server.on('wsClientError', ({ message }, socket) =>
    refusals.get(socket)?.(new EnvdError('invalid_argument', message)),
  );
  return ({ request, head }, unread) =>
    new Promise((resolve, reject) => {
      const { socket } = request;
      refusals.set(socket, reject);
      server.handleUpgrade(request, socket, head, (opened) =>
        resolve(new WebSocketConnection(opened, socket, { streamOf: createWebSocketStream, unread })),
      );
    });
}
