import { lookup } from 'node:dns/promises';
import { BlockList, isIP, SocketAddress } from 'node:net';
import { networkInterfaces } from 'node:os';
import { within } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';

/** An address range such as `10.0.0.0/8`, or one address. */
export interface AddressRange {
  readonly address: string;
  /** Prefix length in bits; null: this one address. */
  readonly prefix: number | null;
}

/** Both ends included. */
export type PortRange = readonly [first: number, last: number];

export interface AddressRules {
  /** Where sandboxes may be; null: anywhere except loopback, link-local, multicast and the gateway's own addresses. */
  readonly allowAddresses: readonly AddressRange[] | null;
  /** Ports that clients may name besides those of daemons. */
  readonly allowPorts: readonly PortRange[];
}

const NEVER_BY_DEFAULT = [
  ...['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4'],
  ...['::/127', 'fe80::/10', 'ff00::/8', '64:ff9b::/96'],
];
/** How long this machine's addresses, and those that names resolve to, are cached, in ms. */
const KEPT_MS = 5000;
/** The most names that are cached. */
const KEPT_NAMES = 10_000;
/** How long a look-up may take, in ms. */
const LOOK_UP_MS = 5000;
/** The most look-ups at a time: each blocks one of the four threads that also write files. */
const LOOK_UPS = 2;
/** The most names that wait for one. */
const MOST_WAITING = 1000;

interface Kept<T> {
  readonly value: T;
  readonly until: number;
}

/** Decides where the gateway may connect to. */
export class Addresses {
  readonly #allowed: BlockList | null;
  /** Addresses that are allowed one by one, not as part of a range. */
  readonly #named: ReadonlySet<string>;
  readonly #refused = listOf(NEVER_BY_DEFAULT.map((text) => readRange(text) ?? unreadable(text)));
  readonly #ports: readonly PortRange[];
  /** What names resolve to; null: to nothing. */
  readonly #names = new Map<string, Kept<string | null>>();
  /** By name: what is being resolved, and begins when it is its turn. */
  readonly #lookUps = new Map<string, Promise<string | null>>();
  readonly #turns: (() => void)[] = [];
  #running = 0;
  #own: Kept<ReadonlySet<string>> = { value: ownAddresses() ?? new Set(), until: 0 };

  constructor({ allowAddresses, allowPorts }: AddressRules) {
    this.#allowed = allowAddresses && listOf(allowAddresses);
    const single = (allowAddresses ?? []).filter(({ prefix }) => prefix === null);
    this.#named = new Set(single.map(({ address }) => canonical(address) ?? address));
    this.#ports = allowPorts;
  }

  /**
   * Checks the address of a new sandbox, and returns it as it is stored. Throws `invalid_argument` for an IP address
   * that is not allowed.
   */
  admit(address: string): { readonly address: string; readonly ip: string | null } {
    const ip = canonical(address);
    if (ip !== null && !this.#isAllowed(ip)) throw new EnvdError('invalid_argument', refusal(ip));
    return { address: ip ?? address, ip };
  }

  isPortAllowed(port: number): boolean {
    return this.#ports.some(([first, last]) => first <= port && port <= last);
  }

  /**
   * The IP address to connect to. A name is resolved here, so that the checked address is the one that is used. Throws
   * `unavailable` when the address is not allowed or the name cannot be resolved.
   */
  async resolve(address: string): Promise<string> {
    const ip = canonical(address) ?? (await this.#lookUp(address));
    if (this.#isAllowed(ip)) return ip;
    throw new EnvdError('unavailable', refusal(ip === address ? ip : `${ip} (${address})`));
  }

  async #lookUp(name: string): Promise<string> {
    const known = this.#names.get(name);
    if (known && known.until > monotonicMs()) return known.value ?? unresolved(name);
    const running = this.#lookUps.get(name) ?? this.#begin(name);
    return (await within(LOOK_UP_MS, running, () => null)) ?? unresolved(name);
  }

  /** One for each name, however many ask, as long as the name server may take. */
  #begin(name: string): Promise<string | null> {
    if (this.#turns.length >= MOST_WAITING) return unresolved(name);
    const found = this.#turn()
      .then(() => lookup(name))
      .then(({ address }) => canonical(address) ?? address)
      .catch(() => null)
      .then((value) => {
        const next = this.#turns.shift();
        if (next) next();
        else this.#running--;
        this.#lookUps.delete(name);
        if (this.#names.size >= KEPT_NAMES) this.#names.clear();
        this.#names.set(name, { value, until: monotonicMs() + KEPT_MS });
        return value;
      });
    this.#lookUps.set(name, found);
    return found;
  }

  async #turn(): Promise<void> {
    if (this.#running >= LOOK_UPS) return new Promise((resolve) => this.#turns.push(resolve));
    this.#running++;
  }

  #isAllowed(ip: string): boolean {
    // A range of a network contains the gateway's own address, too, and everything else that listens there.
    if (this.#allowed)
      return has(this.#allowed, ip) && (!this.#isOwn(ip) || this.#named.has(ip) || isLoopback(ip));
    return !has(this.#refused, ip) && !this.#isOwn(ip);
  }

  #isOwn(ip: string): boolean {
    const now = monotonicMs();
    if (this.#own.until <= now) {
      this.#own = { value: ownAddresses() ?? this.#own.value, until: now + KEPT_MS };
    }
    return this.#own.value.has(ip);
  }
}

/** The addresses of this machine; null while it does not tell, since no descriptor is left for the question. */
function ownAddresses(): ReadonlySet<string> | null {
  try {
    const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
    return new Set(own.map(({ address }) => canonical(address) ?? address));
  } catch {
    return null;
  }
}

/** An IP address in canonical form, as IPv4 when it is IPv4-mapped; null for a name. */
export function canonical(address: string): string | null {
  const version = isIP(address);
  if (version !== 6) return version === 4 ? address : null;
  const { address: short } = new SocketAddress({ address, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(short)?.[1] ?? short;
}

/** Reads `10.0.0.0/8`, `fd00::/8`, or an address; null for anything else. */
export function readRange(text: string): AddressRange | null {
  const [address = '', prefix, ...rest] = text.split('/');
  const bits = isIP(address) === 6 ? 128 : 32;
  if (isIP(address) === 0 || rest.length > 0) return null;
  if (prefix === undefined) return { address, prefix: null };
  return /^\d{1,3}$/.test(prefix) && Number(prefix) <= bits ? { address, prefix: Number(prefix) } : null;
}

/** Reads `80` or `8000-8999`; null for anything else. */
export function readPorts(text: string): PortRange | null {
  const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const range = [Number(first), Number(last)] as const;
  return range[0] >= 1 && range[0] <= range[1] && range[1] <= 65535 ? range : null;
}

export function listOf(ranges: readonly AddressRange[]): BlockList {
  const list = new BlockList();
  for (const { address, prefix } of ranges) {
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (prefix === null) list.addAddress(address, family);
    else list.addSubnet(address, prefix, family);
  }
  return list;
}

export function has(list: BlockList, ip: string): boolean {
  return list.check(ip, isIP(ip) === 6 ? 'ipv6' : 'ipv4');
}

function isLoopback(ip: string): boolean {
  return ip.startsWith('127.') || ip === '::1';
}

function unresolved(name: string): never {
  throw new EnvdError('unavailable', `the name '${name}' cannot be resolved`);
}

function refusal(ip: string): string {
  return `the gateway does not connect to the address ${ip}: --allow-addresses names those that it may`;
}

function unreadable(text: string): never {
  throw new EnvdError('internal', `not a range: ${text}`);
}
