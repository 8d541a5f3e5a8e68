import { setTimeout as delay } from 'node:timers/promises';
import { debug } from '../../../base/debug.ts';
import { eachListeningSocket } from '../../os/listening-sockets.ts';
import { RelayPipes } from '../../os/relay.ts';
import { Forward, type ForwardLimits } from './forward.ts';

/** Interval of looks at the listening sockets, in milliseconds. */
const INTERVAL_MS = 450;
/** Looks after which the guest's address is read again, and a port that could not be listened on is tried again. */
const SLOW = 10;
/** Ports that are forwarded at the same time, and that are begun at one look. */
const MAX_PORTS = 1024;
const MAX_NEW = 128;
/** Connections of all ports together. */
const MAX_CONNECTIONS = 1000;
/** Of rpcbind, which programs of the guest use that mount NFS, and which is at localhost so as not to be reachable. */
const PRIVATE_PORT = 111;
/** Ports named in a line of the log. */
const MAX_NAMED = 16;

export interface ForwardsOptions {
  /** Reads a dump of the listening sockets. */
  read(): Buffer;
  /** The guest's IPv4 address to listen on; null: there is none. */
  address(): Promise<string | null>;
  /** The daemon's port, which is never forwarded. */
  ownPort(): number;
  /** While true, nothing is looked at or changed. */
  isPaused(): boolean;
  /** Called with the ports that have come and gone. */
  onChange(change: { readonly opened: readonly number[]; readonly closed: readonly number[] }): void;
  /** Called with the first error of a series. */
  onFailure(error: unknown): void;
}

/** A forwarded port. */
export interface ForwardedPort {
  readonly port: number;
  /** Where it is listened on: `127.0.0.1` or `::1`. */
  readonly target: string;
  readonly connections: number;
}

/**
 * Makes ports that are listened on at 127.0.0.1 or ::1 alone reachable at the guest's address
 * (docs/decisions/037-localhost-listeners.md).
 */
export class Forwards implements Disposable {
  readonly limits: ForwardLimits = { open: 0, accepted: 0, refused: 0, maxConnections: MAX_CONNECTIONS };
  readonly #options: ForwardsOptions;
  readonly #pipes = new RelayPipes();
  readonly #stop = new AbortController();
  readonly #forwards = new Map<number, Forward>();
  #address: string | null = null;
  #previous: Buffer | null = null;
  #looks = 0;

  constructor(options: ForwardsOptions) {
    this.#options = options;
    void this.#watch();
  }

  /** The guest's address; null: unknown, and nothing is forwarded. */
  get address(): string | null {
    return this.#address;
  }

  list(): ForwardedPort[] {
    const ports = [...this.#forwards.values()].sort((a, b) => a.port - b.port);
    return ports.map(({ port, target, connections }) => ({ port, target, connections }));
  }

  [Symbol.dispose](): void {
    this.#stop.abort();
    for (const forward of this.#forwards.values()) forward[Symbol.dispose]();
    this.#forwards.clear();
    this.#pipes[Symbol.dispose]();
  }

  async #watch(): Promise<void> {
    const { signal } = this.#stop;
    let failed = false;
    // At first the daemon starts.
    while (await hasPassed(INTERVAL_MS, signal)) {
      try {
        if (!this.#options.isPaused()) await this.#look();
        failed = false;
      } catch (error) {
        if (!failed) this.#options.onFailure(error);
        failed = true;
      }
    }
  }

  async #look(): Promise<void> {
    const isSlow = this.#looks++ % SLOW === 0;
    if (isSlow) this.#moveTo(await this.#options.address());
    // A freeze may have begun meanwhile.
    if (this.#address === null || this.#options.isPaused()) return;
    const dump = this.#options.read();
    if (!isSlow && this.#previous?.equals(dump)) return;
    this.#previous = dump;
    const wanted = this.#wanted(dump, this.#address);
    const closed = this.#closeUnless(wanted);
    const opened = await this.#open(wanted, this.#address);
    if (opened.length + closed.length === 0) return;
    const { onChange } = this.#options;
    onChange({ opened: opened.slice(0, MAX_NAMED), closed: closed.slice(0, MAX_NAMED) });
  }

  #moveTo(address: string | null): void {
    if (address === this.#address) return;
    for (const forward of this.#forwards.values()) forward.close();
    this.#forwards.clear();
    this.#address = address;
    debug('ports', 'address', () => ({ address }));
  }

  /** The loopback address of each port that is listened on there, and at no address that we would take. */
  #wanted(dump: Buffer, address: string): Map<number, string> {
    const wanted = new Map<number, string>();
    const taken = new Set([this.#options.ownPort(), PRIVATE_PORT]);
    eachListeningSocket(dump, address, (port, place) => {
      if (place === 'any address' || (place === 'this address' && !this.#forwards.has(port))) taken.add(port);
      else if (place === '127.0.0.1' || (place === '::1' && !wanted.has(port))) wanted.set(port, place);
    });
    for (const port of taken) wanted.delete(port);
    return wanted;
  }

  #closeUnless(wanted: ReadonlyMap<number, string>): number[] {
    const gone = [...this.#forwards.values()].filter(({ port, target }) => wanted.get(port) !== target);
    for (const forward of gone) {
      forward.close();
      this.#forwards.delete(forward.port);
    }
    return gone.map(({ port }) => port);
  }

  async #open(wanted: ReadonlyMap<number, string>, address: string): Promise<number[]> {
    const room = Math.min(MAX_PORTS - this.#forwards.size, MAX_NEW);
    const fresh = [...wanted].filter(([port]) => !this.#forwards.has(port));
    // The rest has its turn at the next look.
    if (fresh.length > room) this.#previous = null;
    const opening = fresh.slice(0, room).map(async ([port, target]) => {
      const forward = new Forward(port, target, this.limits, this.#pipes);
      this.#forwards.set(port, forward);
      try {
        await forward.listen(address);
        return [port];
      } catch {
        // Somebody else's, or not for us: tried again at a slow look.
        forward.close();
        this.#forwards.delete(port);
        return [];
      }
    });
    return (await Promise.all(opening)).flat();
  }
}

/** False when `signal` has aborted before. */
function hasPassed(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  return delay(milliseconds, true, { signal, ref: false }).catch(() => false);
}
