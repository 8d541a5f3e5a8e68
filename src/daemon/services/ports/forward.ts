import { connect, createServer, type Server, type Socket } from 'node:net';
import { resetSocket } from '../../linux/network/connection.ts';
import { Relay, type RelayPipes } from '../../linux/network/relay.ts';
import { native } from '../../linux/system/native.ts';

/** The most connections of all forwards together. */
const MOST_CONNECTIONS = 2000;

/**
 * Limits the connections of all forwards together. The listeners of one user get as many as they leave free: 1,000 for
 * the first user, 500 for a second, 250 for a third.
 */
export class ForwardPlaces {
  accepted = 0;
  refused = 0;
  readonly #ofUsers = new Map<number, number>();

  /** The number of connections now. */
  get open(): number {
    return [...this.#ofUsers.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Takes a place; false, and counted as refused, when none is free for a listener of this user. */
  take(uid: number): boolean {
    const own = this.#ofUsers.get(uid) ?? 0;
    const isFree = own < MOST_CONNECTIONS - this.open;
    if (isFree) this.#ofUsers.set(uid, own + 1);
    this[isFree ? 'accepted' : 'refused']++;
    return isFree;
  }

  giveBack(uid: number): void {
    const left = (this.#ofUsers.get(uid) ?? 0) - 1;
    if (left > 0) this.#ofUsers.set(uid, left);
    else this.#ofUsers.delete(uid);
  }
}

/** A localhost listener. */
export interface Listener {
  readonly port: number;
  /** `127.0.0.1` or `::1`. */
  readonly target: string;
  /** The user who made it. */
  readonly uid: number;
}

/**
 * Listens on one port of the guest's address, and connects each client to the same port of a loopback address. Half-closes
 * and resets are passed on.
 */
export class Forward implements Disposable {
  readonly listener: Listener;
  readonly #server: Server;
  readonly #places: ForwardPlaces;
  readonly #pipes: RelayPipes;
  readonly #clients = new Set<Socket>();
  #descriptor = -1;

  constructor(listener: Listener, places: ForwardPlaces, pipes: RelayPipes) {
    this.listener = listener;
    this.#places = places;
    this.#pipes = pipes;
    // Node reads from no socket.
    const options = { allowHalfOpen: true, noDelay: true, pauseOnConnect: true };
    this.#server = createServer(options, (client) => this.#accept(client));
  }

  get connections(): number {
    return this.#clients.size;
  }

  /**
   * Listens on the port of a numeric address, or on a socket that already does. Throws EADDRINUSE when somebody else listens there,
   * EADDRNOTAVAIL without the address.
   */
  async listen(
    at: { readonly host: string; readonly port: number } | { readonly fd: number },
  ): Promise<void> {
    // Node does not tell the descriptor of a socket that it has opened itself.
    this.#descriptor = 'fd' in at ? at.fd : native.listenAt(at.host, String(at.port), false);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // Later errors, of accept(2), end one connection and not the forward.
    this.#server.on('error', reject);
    this.#server.listen({ fd: this.#descriptor }, resolve).unref();
    await promise;
  }

  get isListening(): boolean {
    return this.#server.listening;
  }

  /** The descriptor of the listening socket, which stays this object's; valid while it listens. */
  get descriptor(): number {
    return this.#descriptor;
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
    const { port, target: host, uid } = this.listener;
    if (!this.#places.take(uid)) {
      resetSocket(client.on('error', () => {}));
      return;
    }
    this.#clients.add(client);
    const target = connect({ port, host, allowHalfOpen: true, noDelay: true }).pause();
    target.once('close', () => {
      this.#places.giveBack(uid);
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
