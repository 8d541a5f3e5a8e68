/**
 * The listener of `ports.ts` at 127.0.0.1: of a client that sends one byte, it takes all that follows; a client of
 * another byte gets `BYTES`. Prints its port.
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type Socket } from 'node:net';

export const TAKE = 1;
export const GIVE = 2;
export const PIECE = 256 * 1024;

/** Sends `bytes` and the end; waits whenever the socket takes no more. */
export async function send(socket: Socket, bytes: number): Promise<void> {
  const piece = Buffer.alloc(PIECE, 'x');
  for (let sent = 0; sent < bytes; sent += PIECE) if (!socket.write(piece)) await once(socket, 'drain');
  socket.end();
}

if (import.meta.main) {
  const bytes = Number(process.argv[2]);
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.once('data', (first) => {
      if (first[0] === GIVE) void send(socket, bytes);
      else socket.on('end', () => socket.end());
    });
    socket.on('data', () => {});
  });
  server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port));
}
