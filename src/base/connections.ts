import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { closeWith } from './client-errors.ts';

/** A connection of Node's HTTP server, with the response that is under way. */
type HttpSocket = Socket & { readonly _httpMessage?: ServerResponse | null };

/** The number of open connections of a server. */
export function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((_error, count) => resolve(count ?? 0)));
}

/**
 * Limits the number of connections. When there are too many, one without a request under way is closed: first the
 * oldest that was never answered, then the oldest that is kept alive. If all are in use, the new one is refused with
 * 503. So idle connections cost those who hold them.
 */
export class Connections {
  readonly #most: number;
  /** The oldest first. */
  readonly #open = new Set<HttpSocket>();
  /** Those that were upgraded: they have no response any more. */
  readonly #upgraded = new WeakSet<Socket>();
  #refused = 0;
  #closed = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get open(): number {
    return this.#open.size;
  }

  /** Connections that were refused, and that were closed for a new one. */
  get counts(): { readonly refused: number; readonly closed: number } {
    return { refused: this.#refused, closed: this.#closed };
  }

  /** Limits the connections of `server`, which must not listen yet. A refused one never gets an HTTP parser. */
  guard(server: Server): void {
    const serve = server.listeners('connection');
    server.removeAllListeners('connection');
    server.on('connection', (socket: HttpSocket) => {
      if (this.#open.size >= this.#most && !this.#makeRoom()) {
        this.#refused++;
        const text = `too many connections: ${this.#most} are in use (--max-connections)`;
        socket.on('error', () => {}).resume();
        closeWith(socket, 503, text);
        return;
      }
      this.#open.add(socket);
      socket.once('close', () => this.#open.delete(socket));
      for (const listener of serve) listener.call(server, socket);
    });
  }

  /** A connection that is in use until it is closed. */
  keep(socket: Socket): void {
    this.#upgraded.add(socket);
  }

  #makeRoom(): boolean {
    let idle: HttpSocket | null = null;
    for (const socket of this.#open) {
      if (socket._httpMessage || this.#upgraded.has(socket)) continue;
      if (socket.bytesWritten === 0) return this.#close(socket);
      idle ??= socket;
    }
    return idle !== null && this.#close(idle);
  }

  #close(socket: HttpSocket): true {
    this.#open.delete(socket);
    this.#closed++;
    socket.destroy();
    return true;
  }
}
