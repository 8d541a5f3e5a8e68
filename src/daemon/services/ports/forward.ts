import { connect, createServer, type Server, type Socket } from 'node:net';
import { resetSocket } from '../../os/socket-handle.ts';

/** What all forwards share. */
export interface ForwardLimits {
  /** Connections now, and ever accepted or refused for the limit. */
  open: number;
  accepted: number;
  refused: number;
  readonly maxConnections: number;
}

/** Connections that wait to be accepted. */
const BACKLOG = 511;

/**
 * Listens on one port of the guest's address, and connects each client to the same port of a loopback address. Half-closes
 * and resets are passed on.
 */
export class Forward implements Disposable {
  readonly port: number;
  /** `127.0.0.1` or `::1`. */
  readonly target: string;
  readonly #server: Server;
  readonly #limits: ForwardLimits;
  readonly #clients = new Set<Socket>();

  constructor(port: number, target: string, limits: ForwardLimits) {
    this.port = port;
    this.target = target;
    this.#limits = limits;
    this.#server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.#accept(client));
  }

  get connections(): number {
    return this.#clients.size;
  }

  /** Throws EADDRINUSE when somebody else listens there, EADDRNOTAVAIL without the address. */
  async listen(host: string): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // Later errors, of accept(2), end one connection and not the forward.
    this.#server.on('error', reject);
    this.#server.listen({ port: this.port, host, backlog: BACKLOG }, resolve).unref();
    await promise;
  }

  /** Stops listening; connections go on until they end. */
  close(): void {
    this.#server.close();
  }

  /** Ends all connections, too. */
  [Symbol.dispose](): void {
    this.close();
    for (const client of this.#clients) resetSocket(client);
  }

  #accept(client: Socket): void {
    const limits = this.#limits;
    if (limits.open >= limits.maxConnections) {
      limits.refused++;
      resetSocket(client.on('error', () => {}));
      return;
    }
    limits.accepted++;
    limits.open++;
    this.#clients.add(client);
    const target = connect({ port: this.port, host: this.target, allowHalfOpen: true, noDelay: true });
    target.once('close', () => {
      limits.open--;
      this.#clients.delete(client);
    });
    // They must not keep a stopping daemon alive.
    client.unref();
    target.unref();
    pass(client, target);
    pass(target, client);
  }
}

/** Passes on data, the end, and what ends the connection otherwise. */
function pass(from: Socket, to: Socket): void {
  from.pipe(to);
  from.on('error', () => resetSocket(to));
  from.once('close', () => {
    if (!from.readableEnded || !to.writableEnded) resetSocket(to);
  });
}
