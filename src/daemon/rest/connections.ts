import type { Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { closeWith } from '../../base/client-errors.ts';

/** A connection of Node's HTTP server: it has the response that is under way. */
type HttpSocket = Socket & { readonly _httpMessage?: ServerResponse | null };

/**
 * Limits the number of connections. When there are too many, one is closed that no request is served on: at first the
 * oldest of those that have never been answered, then the oldest of those that are kept alive. If all are in use, the new
 * one is refused with 503. So connections that are only held open cost those who hold them.
 */
export class Connections {
  /** Takes connections that are not for `server`, which are not counted either, and returns true. */
  divert: ((socket: Socket) => boolean) | null = null;
  readonly #most: number;
  /** The oldest first. */
  readonly #open = new Set<HttpSocket>();
  #refused = 0;
  #closed = 0;

  constructor(most: number) {
    this.#most = most;
  }

  get open(): number {
    return this.#open.size;
  }

  /** Those that were refused and those that were closed for a new one. */
  get counts(): { readonly refused: number; readonly closed: number } {
    return { refused: this.#refused, closed: this.#closed };
  }

  /** Watches the connections of `server`; before it listens. A refused one never gets an HTTP parser. */
  guard(server: Server): void {
    const serve = server.listeners('connection');
    server.removeAllListeners('connection');
    server.on('connection', (socket: HttpSocket) => {
      if (this.divert?.(socket)) return;
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

  #makeRoom(): boolean {
    let idle: HttpSocket | null = null;
    for (const socket of this.#open) {
      if (socket._httpMessage) continue;
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
