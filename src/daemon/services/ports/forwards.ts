import { closeSync } from 'node:fs';
import { debug } from '../../../base/program/debug.ts';
import { Repeated } from '../../../base/repeated.ts';
import { eachListeningSocket, type ListeningSockets } from '../../linux/network/listening-sockets.ts';
import { RelayPipes } from '../../linux/network/relay.ts';
import { native } from '../../linux/system/native.ts';
import { Forward, ForwardPlaces, type Listener } from './forward.ts';
import { isSameListener, type Latecomer, PortOwners } from './port-owners.ts';
import { fairShares } from './shares.ts';

/** How often the listening sockets are read, in milliseconds, unless that would take more than `MOST_SHARE`. */
const INTERVAL_MS = 700;
/** After how many reads the guest's address is read again, and ports that could not be listened on are tried again. */
const SLOW = 10;
/** The share of a core that reading may take. */
const MOST_SHARE = 0.05;
/** The most ports that are added after one read. */
const MAX_NEW = 128;
/**
 * The port of rpcbind, which NFS mounts in the guest use. It listens at localhost so that it cannot be reached from outside.
 */
const PRIVATE_PORT = 111;
/** The most ports that a log line names. */
const MAX_NAMED = 16;

export interface ForwardsOptions {
  /** The most ports that are forwarded at the same time. */
  readonly maxPorts: number;
  /** Reads the listening sockets, including those at `address`. */
  read(address: string): Promise<ListeningSockets>;
  /** Resolves with the guest's IPv4 address to listen on; null when there is none. */
  address(): Promise<string | null>;
  /** Returns the daemon's port, which is never forwarded. */
  ownPort(): number;
  /** While it returns true, nothing is read or changed. */
  isPaused(): boolean;
  /** Called with the ports whose forwards were opened and closed. */
  onChange(change: { readonly opened: readonly number[]; readonly closed: readonly number[] }): void;
  /** Called with listeners that are not forwarded, because another user's listener has their port. */
  onLatecomers(latecomers: readonly Latecomer[]): void;
  /** Called with the first error of a series. */
  onFailure(error: unknown): void;
  /** The state that an earlier program of this process has handed over. Its descriptors become this object's. */
  readonly earlier?: ForwardsState | undefined;
}

/** The forwards at an address, with the descriptors of their listening sockets. */
export interface ForwardsState {
  readonly address: string | null;
  readonly forwards: readonly (Listener & { readonly descriptor: number })[];
}

export interface ForwardedPort extends Pick<Listener, 'port' | 'target'> {
  readonly connections: number;
}

/**
 * Makes ports of listeners at 127.0.0.1 or ::1 reachable at the guest's address (docs/decisions/023-localhost-listeners.md).
 */
export class Forwards implements Disposable {
  readonly places = new ForwardPlaces();
  readonly #options: ForwardsOptions;
  readonly #pipes = new RelayPipes();
  readonly #polling: Repeated;
  readonly #forwards = new Map<number, Forward>();
  readonly #owners: PortOwners;
  /** Sockets of an earlier program that listen at `#address`, by port, until a forward of this program takes them. */
  readonly #inherited = new Map<number, number>();
  /** Ports that could not be listened on, because somebody else has them or the kernel refused. */
  readonly #failed = new Set<number>();
  #address: string | null = null;
  #previous: ListeningSockets | null = null;
  #polls = 0;
  #hasFailed = false;

  constructor(options: ForwardsOptions) {
    this.#options = options;
    const { address = null, forwards = [] } = options.earlier ?? {};
    this.#address = address;
    this.#owners = new PortOwners(forwards);
    for (const { port, descriptor } of forwards) this.#inherited.set(port, descriptor);
    // The first poll waits, too, because the daemon is still starting.
    this.#polling = new Repeated(INTERVAL_MS, () => this.poll());
  }

  /** The guest's address; null while it is unknown and nothing is forwarded. */
  get address(): string | null {
    return this.#address;
  }

  get size(): number {
    return this.#forwards.size;
  }

  /** Returns the state for a later program of this process. Descriptors stay this object's. */
  handOver(): ForwardsState {
    const forwards = Array.from(this.#forwards.values(), ({ listener, descriptor }) => ({
      ...listener,
      descriptor,
    }));
    return { address: this.#address, forwards };
  }

  list(): ForwardedPort[] {
    const ports = [...this.#forwards.values()].map((forward) => {
      const { listener, connections } = forward;
      return { port: listener.port, target: listener.target, connections };
    });
    return ports.sort((a, b) => a.port - b.port);
  }

  /** Does now what is done at intervals. Resolves with the time until it is to be done next, in milliseconds. */
  async poll(): Promise<number> {
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
    this.#polling[Symbol.dispose]();
    for (const forward of this.#forwards.values()) forward[Symbol.dispose]();
    this.#forwards.clear();
    this.#closeInherited();
    this.#pipes[Symbol.dispose]();
  }

  async #update(): Promise<void> {
    const isSlow = this.#polls++ % SLOW === 0;
    if (isSlow) {
      this.#moveTo(await this.#options.address());
      this.#failed.clear();
    }
    // A freeze may have begun while the address was read.
    if (this.#address === null || this.#options.isPaused()) return;
    const found = await this.#options.read(this.#address);
    if (this.#polling.isOver || this.#options.isPaused()) return;
    if (!isSlow && this.#previous && isSame(this.#previous, found)) return;
    this.#previous = found;
    const latecomers = this.#owners.update(found);
    if (latecomers.length > 0) this.#options.onLatecomers(latecomers.slice(0, MAX_NAMED));
    const chosen = this.#chosen(this.#wanted(found));
    const closed = this.#closeUnless(chosen);
    this.#closeInherited(chosen);
    const opened = this.#open(this.#new(chosen), this.#address);
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
   * Returns listeners whose port nobody else uses at an address that the forward would listen on. A port that is forwarded
   * stays so: a stranger can listen at all addresses of IPv6, and would get the port at the guest's address as soon as it is
   * free.
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

  /** Chooses listeners within the limit and the shares of their users. Those that are forwarded already come first. */
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

  #new(chosen: ReadonlyMap<number, Listener>): Listener[] {
    const found = [...chosen.values()].filter(
      ({ port }) => !this.#forwards.has(port) && !this.#failed.has(port),
    );
    // The rest follows after the next read, which must not count as unchanged.
    if (found.length > MAX_NEW) this.#previous = null;
    return found.slice(0, MAX_NEW);
  }

  /** Opens forwards; returns the ports that could be listened on. */
  #open(listeners: readonly Listener[], address: string): number[] {
    return listeners.flatMap((listener) => {
      const { port } = listener;
      const inherited = this.#inherited.get(port);
      this.#inherited.delete(port);
      try {
        const descriptor = inherited ?? native.listenAt(address, String(port), false);
        this.#forwards.set(port, new Forward(listener, descriptor, this.places, this.#pipes));
        return [port];
      } catch {
        this.#failed.add(port);
        return [];
      }
    });
  }
}

function isSame(one: ListeningSockets, other: ListeningSockets): boolean {
  if (one.size !== other.size) return false;
  for (const socket of one.keys()) if (!other.has(socket)) return false;
  return true;
}
