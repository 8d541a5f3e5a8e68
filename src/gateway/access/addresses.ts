import { lookup } from 'node:dns/promises';
import { BlockList, isIP, SocketAddress } from 'node:net';
import { networkInterfaces } from 'node:os';
import { within } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';
import { monotonicMs } from '../../base/monotonic.ts';

/** A range of addresses such as `10.0.0.0/8`, or a single address. */
export interface AddressRange {
  readonly address: string;
  /** The length of the prefix in bits; null for a single address. */
  readonly prefix: number | null;
}

/** A range of ports, which includes both ends. */
export type PortRange = readonly [first: number, last: number];

export interface AddressRules {
  /**
   * Sandboxes may be at these addresses. If it is null, any address but loopback, link-local, multicast and the gateway's own
   * is allowed.
   */
  readonly allowAddresses: readonly AddressRange[] | null;
  /** Clients may name these ports, in addition to those of daemons. */
  readonly allowPorts: readonly PortRange[];
}

const NEVER_BY_DEFAULT = [
  ...['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4'],
  ...['::/127', 'fe80::/10', 'ff00::/8', '64:ff9b::/96'],
];
/** The addresses of this machine, and those that names resolve to, are cached for this time, in ms. */
const KEPT_MS = 5000;
/** At most this many names are cached. */
const KEPT_NAMES = 10_000;
/** A look-up must end within this time, in ms. */
const LOOK_UP_MS = 5000;
/** At most this many look-ups run at the same time, because each blocks one of the four threads that also write files. */
const LOOK_UPS = 2;
/** At most this many names wait for their look-up. */
const MOST_WAITING = 1000;

interface Kept<T> {
  readonly value: T;
  readonly until: number;
}

/** Decides where the gateway may connect to. */
export class Addresses {
  readonly #allowed: BlockList | null;
  /** These addresses are allowed by themselves, not as part of a range. */
  readonly #named: ReadonlySet<string>;
  readonly #refused = listOf(NEVER_BY_DEFAULT.map((text) => readRange(text) ?? unreadable(text)));
  readonly #ports: readonly PortRange[];
  /** The addresses that names resolve to; null if a name could not be resolved. */
  readonly #names = new Map<string, Kept<string | null>>();
  /** The look-ups that run or wait for their turn. The keys are names. */
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
   * Checks the address of a new sandbox, and returns it in the form in which it is stored. `ip` is null for a host name. Throws
   * `invalid_argument` for an IP address that is not allowed.
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
   * Returns the IP address to connect to. Resolves a name here, so that the gateway connects to the very address that was
   * checked. Throws `unavailable` when the address is not allowed or the name cannot be resolved.
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

  /** Begins a look-up, which all requests for the name share and which continues after their time limit. */
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
    // A range of a network also contains the gateway's own address, with every other server on this machine.
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

/** Returns the addresses of this machine, or null if no descriptor is free to ask for them. */
function ownAddresses(): ReadonlySet<string> | null {
  try {
    const own = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
    return new Set(own.map(({ address }) => canonical(address) ?? address));
  } catch {
    return null;
  }
}

/** Returns an IP address in canonical form, and an IPv4-mapped one as IPv4. Returns null for a name. */
export function canonical(address: string): string | null {
  const version = isIP(address);
  if (version !== 6) return version === 4 ? address : null;
  const { address: short } = new SocketAddress({ address, family: 'ipv6' });
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(short)?.[1] ?? short;
}

/** Parses `10.0.0.0/8`, `fd00::/8` or a single address. Returns null for anything else. */
export function readRange(text: string): AddressRange | null {
  const [address = '', prefix, ...rest] = text.split('/');
  const bits = isIP(address) === 6 ? 128 : 32;
  if (isIP(address) === 0 || rest.length > 0) return null;
  if (prefix === undefined) return { address, prefix: null };
  return /^\d{1,3}$/.test(prefix) && Number(prefix) <= bits ? { address, prefix: Number(prefix) } : null;
}

/** Parses `80` or `8000-8999`. Returns null for anything else. */
export function readPorts(text: string): PortRange | null {
  const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text) ?? [];
  const range = [Number(first), Number(last)] as const;
  return range[0] >= 1 && range[0] <= range[1] && range[1] <= 65535 ? range : null;
}

/** Returns a list that can be searched for addresses in `ranges`. */
export function listOf(ranges: readonly AddressRange[]): BlockList {
  const list = new BlockList();
  for (const { address, prefix } of ranges) {
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (prefix === null) list.addAddress(address, family);
    else list.addSubnet(address, prefix, family);
  }
  return list;
}

/** Returns whether a list contains an IP address. */
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
  return `the gateway does not connect to the address ${ip}: --allow-addresses must name it`;
}

function unreadable(text: string): never {
  throw new EnvdError('internal', `not a range: ${text}`);
}
