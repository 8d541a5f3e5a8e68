import { closeSync } from 'node:fs';
import { debug } from '../../../base/program/debug.ts';
import { Repeated } from '../../../base/repeated.ts';
import { eachListeningSocket, type ListeningSockets } from '../../linux/network/listening-sockets.ts';
import { RelayPipes } from '../../linux/network/relay.ts';
import { Forward, ForwardPlaces, type Listener } from './forward.ts';
import { isSameListener, type Latecomer, PortOwners } from './port-owners.ts';
import { fairShares } from './shares.ts';

/** How often the listening sockets are read, in milliseconds. */
const INTERVAL_MS = 700;
/** After this many reads the guest's address is read again, and ports that could not be listened on are tried again. */
const SLOW = 10;
/** Reading may take this share of a core. */
const MOST_SHARE = 0.05;
/** The most ports that are added after one read. */
const MAX_NEW = 128;
/** The port of rpcbind, which NFS mounts in the guest use. It is at localhost so that it cannot be reached from outside. */
const PRIVATE_PORT = 111;
/** The most ports that a log line names. */
const MAX_NAMED = 16;

export interface ForwardsOptions {
  /** Most ports that are forwarded at the same time. */
  readonly maxPorts: number;
  /** Reads the listening sockets, with those at `address`. */
  read(address: string): Promise<ListeningSockets>;
  /** The guest's IPv4 address to listen on; null: there is none. */
  address(): Promise<string | null>;
  /** The daemon's port, which is never forwarded. */
  ownPort(): number;
  /** While true, nothing is read or changed. */
  isPaused(): boolean;
  /** Called with the ports that were added and removed. */
  onChange(change: { readonly opened: readonly number[]; readonly closed: readonly number[] }): void;
  /** Called with listeners that are not forwarded because another user's has their port. */
  onLatecomers(latecomers: readonly Latecomer[]): void;
  /** Called with the first error of a series. */
  onFailure(error: unknown): void;
  /** What an earlier program of this process has handed over; its descriptors become this object's. */
  readonly earlier?: ForwardsState | undefined;
}

/** The forwards at an address, with the descriptors of their listening sockets. */
export interface ForwardsState {
  readonly address: string | null;
  readonly forwards: readonly (Listener & { readonly descriptor: number })[];
}

/** A forwarded port. */
export interface ForwardedPort extends Pick<Listener, 'port' | 'target'> {
  /** Connections that are open now. */
  readonly connections: number;
}

/**
 * Makes ports that are listened on at 127.0.0.1 or ::1 alone reachable at the guest's address
 * (docs/decisions/023-localhost-listeners.md).
 */
export class Forwards implements Disposable {
  readonly places = new ForwardPlaces();
  readonly #options: ForwardsOptions;
  readonly #pipes = new RelayPipes();
  readonly #looking: Repeated;
  readonly #forwards = new Map<number, Forward>();
  readonly #owners: PortOwners;
  /** Sockets of an earlier program that listen on the port at `#address`, until a forward of this one goes on with it. */
  readonly #inherited = new Map<number, number>();
  /** Ports that could not be listened on: taken by somebody else, or refused. */
  readonly #failed = new Set<number>();
  #address: string | null = null;
  #previous: ListeningSockets | null = null;
  #looks = 0;
  #hasFailed = false;

  constructor(options: ForwardsOptions) {
    this.#options = options;
    const { address = null, forwards = [] } = options.earlier ?? {};
    this.#address = address;
    this.#owners = new PortOwners(forwards);
    for (const { port, descriptor } of forwards) this.#inherited.set(port, descriptor);
    // Waits first: the daemon is still starting.
    this.#looking = new Repeated(INTERVAL_MS, () => this.look());
  }

  /** The guest's address; null: unknown, and nothing is forwarded. */
  get address(): string | null {
    return this.#address;
  }

  /** The number of forwarded ports. */
  get size(): number {
    return this.#forwards.size;
  }

  /** For a later program of this process; descriptors stay this object's. */
  handOver(): ForwardsState {
    const forwards = [...this.#forwards.values()].filter(({ isListening }) => isListening);
    return {
      address: this.#address,
      forwards: forwards.map(({ listener, descriptor }) => ({ ...listener, descriptor })),
    };
  }

  list(): ForwardedPort[] {
    const ports = [...this.#forwards.values()].map((forward) => {
      const { listener, connections } = forward;
      return { port: listener.port, target: listener.target, connections };
    });
    return ports.sort((a, b) => a.port - b.port);
  }

  /** Does now what it does at intervals. Resolves with the time until the next one, in milliseconds. */
  async look(): Promise<number> {
    if (this.#options.isPaused()) return INTERVAL_MS;
    const before = process.threadCpuUsage();
    try {
      await this.#update();
      this.#hasFailed = false;
    } catch (error) {
      if (!this.#hasFailed) this.#options.onFailure(error);
      this.#hasFailed = true;
    }
    const { user, system } = process.threadCpuUsage(before);
    return Math.max(INTERVAL_MS, (user + system) / 1000 / MOST_SHARE);
  }

  [Symbol.dispose](): void {
    this.#looking[Symbol.dispose]();
    for (const forward of this.#forwards.values()) forward[Symbol.dispose]();
    this.#forwards.clear();
    this.#closeInherited();
    this.#pipes[Symbol.dispose]();
  }

  async #update(): Promise<void> {
    const isSlow = this.#looks++ % SLOW === 0;
    if (isSlow) {
      this.#moveTo(await this.#options.address());
      this.#failed.clear();
    }
    // A freeze may have begun meanwhile.
    if (this.#address === null || this.#options.isPaused()) return;
    const found = await this.#options.read(this.#address);
    if (this.#looking.isOver || this.#options.isPaused()) return;
    if (!isSlow && this.#previous && isSame(this.#previous, found)) return;
    this.#previous = found;
    const latecomers = this.#owners.update(found);
    if (latecomers.length > 0) this.#options.onLatecomers(latecomers.slice(0, MAX_NAMED));
    const chosen = this.#chosen(this.#wanted(found));
    const closed = this.#closeUnless(chosen);
    this.#closeInherited(chosen);
    const opened = await this.#open(this.#new(chosen), this.#address);
    if (opened.length + closed.length === 0) return;
    const { onChange } = this.#options;
    onChange({ opened: opened.slice(0, MAX_NAMED), closed: closed.slice(0, MAX_NAMED) });
  }

  #moveTo(address: string | null): void {
    if (address === this.#address) return;
    for (const forward of this.#forwards.values()) forward.close();
    this.#forwards.clear();
    this.#closeInherited();
    this.#address = address;
    debug('ports', 'forward address set', () => ({ address }));
  }

  #closeInherited(except?: ReadonlyMap<number, Listener>): void {
    for (const [port, descriptor] of this.#inherited) {
      if (except?.has(port)) continue;
      this.#inherited.delete(port);
      closeSync(descriptor);
    }
  }

  /**
   * Listeners whose port nobody else uses at an address that we would listen on. A port that is forwarded stays so: a stranger
   * can listen at all addresses of IPv6, and would get the port at the guest's address as soon as it is given up.
   */
  #wanted(found: ListeningSockets): Listener[] {
    const taken = new Set<number>();
    eachListeningSocket(found, (port, place) => {
      const isOurs = this.#forwards.has(port) || this.#inherited.has(port);
      if ((place === 'any address' || place === 'this address') && !isOurs) taken.add(port);
    });
    taken.add(this.#options.ownPort()).add(PRIVATE_PORT);
    return [...this.#owners.listeners].filter(({ port }) => !taken.has(port));
  }

  /** The listeners within the limit and their users' shares; those already forwarded come first. */
  #chosen(wanted: readonly Listener[]): Map<number, Listener> {
    const { forwarded = [], others = [] } = Object.groupBy(wanted, (listener) =>
      isSameListener(listener, this.#forwards.get(listener.port)?.listener) ? 'forwarded' : 'others',
    );
    const chosen = fairShares([...forwarded, ...others], this.#options.maxPorts);
    return new Map(chosen.map((listener) => [listener.port, listener]));
  }

  #closeUnless(chosen: ReadonlyMap<number, Listener>): number[] {
    const gone = [...this.#forwards.values()].filter(
      ({ listener }) => !isSameListener(listener, chosen.get(listener.port)),
    );
    for (const forward of gone) {
      forward.close();
      this.#forwards.delete(forward.listener.port);
    }
    return gone.map(({ listener }) => listener.port);
  }

  /** The listeners to forward now. */
  #new(chosen: ReadonlyMap<number, Listener>): Listener[] {
    const found = [...chosen.values()].filter(
      ({ port }) => !this.#forwards.has(port) && !this.#failed.has(port),
    );
    // The rest follows after the next read.
    if (found.length > MAX_NEW) this.#previous = null;
    return found.slice(0, MAX_NEW);
  }

  async #open(listeners: readonly Listener[], address: string): Promise<number[]> {
    const opening = listeners.map(async (listener) => {
      const { port } = listener;
      const forward = new Forward(listener, this.places, this.#pipes);
      this.#forwards.set(port, forward);
      const fd = this.#inherited.get(port);
      this.#inherited.delete(port);
      try {
        await forward.listen(fd === undefined ? { host: address, port } : { fd });
        return [port];
      } catch {
        forward.close();
        this.#forwards.delete(port);
        this.#failed.add(port);
        return [];
      }
    });
    return (await Promise.all(opening)).flat();
  }
}

function isSame(one: ListeningSockets, other: ListeningSockets): boolean {
  if (one.size !== other.size) return false;
  for (const socket of one.keys()) if (!other.has(socket)) return false;
  return true;
}
