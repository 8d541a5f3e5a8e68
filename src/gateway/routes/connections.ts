import { AsyncLocalStorage } from 'node:async_hooks';
import type { Server } from 'node:http';
import type { Socket } from 'node:net';

/**
 * Whose work it is that runs: each connection of a client is a context, which goes along with everything that follows
 * from it. So an error that nobody has caught can be laid at the door of the exchange that it was thrown in.
 */
export class Connections {
  readonly #current = new AsyncLocalStorage<Socket>();

  /** To be called before the server has accepted any. */
  follow(server: Server): void {
    // Before the server's own listener, which makes the parser; the context ends with the kernel's event.
    server.prependListener('connection', (socket: Socket) => this.#current.enterWith(socket));
  }

  /** Closes the connection that the running code works for. Returns false when it works for none. */
  endCurrent(): boolean {
    const socket = this.#current.getStore();
    socket?.destroy();
    return socket !== undefined;
  }
}
