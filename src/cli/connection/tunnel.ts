import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { createWebSocketStream, WebSocket } from 'ws';
import { Failure } from '../output/failure.ts';
import type { Connection } from './connection.ts';
import { headersOf } from './endpoint.ts';
import { failureOf, failureOfStatus } from './failures.ts';

/** Close codes above this one are the status of an error. */
const OF_STATUS = 4000;
/** The most of an answer that is no tunnel, in bytes. */
const MAX_ANSWER = 64 * 1024;
/** How much is sent in one message, in bytes: daemons take 128 KiB. */
const PIECE_BYTES = 64 * 1024;
/** How long a daemon may take to open one, in milliseconds. */
const OPEN_MS = 30_000;

/** A connection to a port of a sandbox' localhost. */
export interface Tunnel {
  readonly stream: Duplex;
  /** Resolves at its end, with what has gone wrong, or null. */
  readonly closed: Promise<Failure | null>;
}

/** Opens a tunnel to a port of localhost. Throws `Failure`. */
export async function openTunnel({ target }: Connection, port: number): Promise<Tunnel> {
  const url = `${target.url.replace(/^http/, 'ws')}/ports/${port}/tunnel`;
  const socket = new WebSocket(url, ['envd.tunnel'], {
    headers: headersOf(target),
    perMessageDeflate: false,
    handshakeTimeout: OPEN_MS,
  });
  const closed = new Promise<Failure | null>((resolve) =>
    socket.once('close', (code, reason) => resolve(failureIn(code, String(reason), target.name))),
  );
  const refused = once(socket, 'unexpected-response').then(async ([, response]) => {
    throw failureOfStatus(response.statusCode, await textOf(response), target.name);
  });
  const stream = createWebSocketStream(socket, { writableHighWaterMark: PIECE_BYTES });
  stream.on('error', () => {});
  refused.catch(() => socket.terminate());
  try {
    await Promise.race([once(socket, 'open'), refused]);
  } catch (error) {
    throw failureOf(error, target.name);
  }
  return { stream, closed };
}

/** What a close code means; null for a normal end. */
function failureIn(code: number, reason: string, name: string): Failure | null {
  if (code > OF_STATUS) return failureOfStatus(code - OF_STATUS, JSON.stringify({ message: reason }), name);
  // A server that ends its connection has no code of its own to tell.
  if (code === 1000 || code === 1005) return null;
  return new Failure('unreachable', reason || `${name} has closed the connection (${code})`);
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = '';
  for await (const piece of response) {
    text += piece;
    if (text.length > MAX_ANSWER) break;
  }
  return text;
}
