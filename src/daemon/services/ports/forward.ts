import { connect, createServer, type Server, type Socket } from 'node:net';
import { Relay, type RelayPipes } from '../../os/relay.ts';
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
  readonly #pipes: RelayPipes;
  readonly #clients = new Set<Socket>();

  constructor(port: number, target: string, limits: ForwardLimits, pipes: RelayPipes) {
    this.port = port;
    this.target = target;
    this.#limits = limits;
    this.#pipes = pipes;
    // Node reads from no socket.
    const options = { allowHalfOpen: true, noDelay: true, pauseOnConnect: true };
    this.#server = createServer(options, (client) => this.#accept(client));
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
    const options = { port: this.port, host: this.target, allowHalfOpen: true, noDelay: true };
    const target = connect(options).pause();
    target.once('close', () => {
      limits.open--;
      this.#clients.delete(client);
    });
    // They must not keep a stopping daemon alive.
    client.unref();
    target.unref();
    join(client, target, this.#pipes);
  }
}

/** Relays between them once the target is connected; one that closes before resets the other. */
function join(client: Socket, target: Socket, pipes: RelayPipes): void {
  let relay: Relay | null = null;
  const end = () => {
    if (relay) return relay[Symbol.dispose]();
    resetSocket(client);
    resetSocket(target);
  };
  for (const socket of [client, target]) socket.on('error', () => {}).once('close', end);
  target.once('connect', () => {
    if (client.destroyed) return;
    try {
      relay = new Relay(client, target, pipes);
    } catch {
      end();
    }
  });
}
