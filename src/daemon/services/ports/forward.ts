import { closeSync } from 'node:fs';
import { Relay, type RelayPipes, resetConnection } from '../../linux/network/relay.ts';
import { native } from '../../linux/system/native.ts';
import { CLOSE, READABLE } from '../../linux/system/readiness.ts';

/** The most connections of all forwards together. */
const MOST_CONNECTIONS = 2000;
/** The most connections that one forward accepts in a turn of the event loop. */
const MOST_AT_ONCE = 64;
/** How long a forward waits after an error of accept(2), such as EMFILE, in milliseconds. */
const RETRY_MS = 100;

/**
 * Limits the connections of all forwards together. The listeners of one user get as many as they leave free: 1,000 for the
 * first user, 500 for a second, 250 for a third.
 */
export class ForwardPlaces {
  accepted = 0;
  refused = 0;
  readonly #ofUsers = new Map<number, number>();

  get open(): number {
    return [...this.#ofUsers.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Takes a place; returns false, and counts a refusal, when none is free for a listener of this user. */
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

/** A socket of the guest that listens on a loopback address. */
export interface Listener {
  readonly port: number;
  /** `127.0.0.1` or `::1`. */
  readonly target: string;
  /** The user who made it. */
  readonly uid: number;
}

/**
 * Accepts connections at the guest's address, and relays each to the same port of a loopback address. Ends of one direction
 * and resets are passed on.
 */
export class Forward implements Disposable {
  readonly listener: Listener;
  /** The socket that listens at the guest's address. It belongs to this object, and is open until `close`. */
  readonly descriptor: number;
  readonly #places: ForwardPlaces;
  readonly #pipes: RelayPipes;
  readonly #relays = new Set<Relay>();
  readonly #wait: (events: number) => void;
  #isListening = true;

  /** Throws epoll_ctl(2)'s errors; `descriptor` is closed then. */
  constructor(listener: Listener, descriptor: number, places: ForwardPlaces, pipes: RelayPipes) {
    this.listener = listener;
    this.descriptor = descriptor;
    this.#places = places;
    this.#pipes = pipes;
    using failed = new DisposableStack();
    failed.defer(() => closeSync(descriptor));
    this.#wait = native.pollDescriptor(descriptor, () => this.#accept());
    this.#wait(READABLE);
    failed.move();
  }

  get connections(): number {
    return this.#relays.size;
  }

  /** Stops listening. Connections go on until they end. */
  close(): void {
    if (!this.#isListening) return;
    this.#isListening = false;
    this.#wait(CLOSE);
    closeSync(this.descriptor);
  }

  /** Stops listening and resets all connections. */
  [Symbol.dispose](): void {
    this.close();
    for (const relay of this.#relays) relay[Symbol.dispose]();
  }

  #accept(): void {
    try {
      for (let count = 0; count < MOST_AT_ONCE; count++) {
        const client = native.acceptConnection(this.descriptor);
        if (client === null) return;
        this.#relay(client);
      }
    } catch {
      // The connections stay in the queue, so waiting for them would call back at once, forever.
      this.#wait(0);
      setTimeout(() => this.#isListening && this.#wait(READABLE), RETRY_MS).unref();
    }
  }

  #relay(client: number): void {
    const { port, target, uid } = this.listener;
    if (!this.#places.take(uid)) {
      resetConnection(client);
      return;
    }
    using failed = new DisposableStack();
    failed.defer(() => this.#places.giveBack(uid));
    failed.adopt(client, resetConnection);
    try {
      const server = failed.adopt(native.connectTo(target, String(port)), resetConnection);
      const relay = new Relay(client, server, this.#pipes, () => {
        this.#places.giveBack(uid);
        this.#relays.delete(relay);
      });
      this.#relays.add(relay);
      failed.move();
    } catch {
      // Nobody listens any more, or there are no more descriptors: the client is reset.
    }
  }
}
