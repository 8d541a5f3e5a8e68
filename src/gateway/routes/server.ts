import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Connections } from './connections.ts';
import type { Door } from './router.ts';

/** Shorter than the daemon's 640 s, so that it is always the proxy that closes an idle connection. */
const KEEP_ALIVE_MS = 620_000;

/** The one HTTP server, not listening yet. Requests and answers may take as long as they like. */
export function createFrontServer(door: Door, connections: Connections): Server {
  const server = createServer({
    keepAliveTimeout: KEEP_ALIVE_MS,
    requestTimeout: 0,
    shouldUpgradeCallback: isWebSocket,
  });
  connections.follow(server);
  server.on('request', (request, response) => door.request(request, response));
  server.on('upgrade', (request, socket, head) => door.upgrade(request, socket as Socket, head));
  return server;
}

/** Any other upgrade is an offer that a server may ignore: such a request, or one with a body, is one like all others. */
function isWebSocket({ method, headers }: IncomingMessage): boolean {
  const { upgrade, 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return method === 'GET' && upgrade?.toLowerCase() === 'websocket' && length === '0' && coding === undefined;
}
