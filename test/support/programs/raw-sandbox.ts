import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';

/** Called with the head of each request, and its connection. */
export type Behaviour = (socket: Socket, head: string) => void;

/** A service in a sandbox that sends arbitrary bytes; `behaviour` may be changed at any time. */
export interface RawSandbox extends AsyncDisposable {
  readonly port: number;
  behaviour: Behaviour;
}

export async function startRawSandbox(behaviour: Behaviour = (socket) => socket.end()): Promise<RawSandbox> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    // The gateway resets connections with invalid responses.
    socket.on('error', () => {});
    let head = '';
    socket.on('data', (data) => {
      head += data.toString('latin1');
      if (!head.includes('\r\n\r\n')) return;
      sandbox.behaviour(socket, head);
      head = '';
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sandbox: RawSandbox = {
    port: (server.address() as AddressInfo).port,
    behaviour,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
  return sandbox;
}

/** After this time an exchange is taken to hang. */
const PATIENCE_MS = 120_000;

/**
 * Sends bytes to a local port, piece by piece, and resolves with everything received until the connection ends, in
 * whichever way. Throws when it does not end. With several pieces this side ends after the last.
 */
export async function exchange(port: number, ...pieces: readonly string[]): Promise<string> {
  const socket = connect(port, '127.0.0.1').setNoDelay();
  const received: string[] = [];
  socket.on('data', (data) => received.push(data.toString('latin1')));
  // The other side may reset the connection.
  socket.on('error', () => {});
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const patience = setTimeout(() => socket.destroy(new Error('too long')), PATIENCE_MS);
  for (const piece of pieces) {
    socket.write(piece, 'latin1');
    if (pieces.length > 1) await turn();
  }
  if (pieces.length > 1) socket.end();
  await closed;
  clearTimeout(patience);
  const answer = received.join('');
  if (socket.errored?.message !== 'too long') return answer;
  throw new Error(`the exchange did not end: ${JSON.stringify({ pieces, answer })}`);
}

/** A request as bytes, from its lines and its body. */
export const message = (lines: readonly string[], body = '') => `${lines.join('\r\n')}\r\n\r\n${body}`;
