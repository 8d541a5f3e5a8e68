import { parseCount, parseList, type Setting, setting } from '../../base/program/settings.ts';
import { type AddressRange, readRange } from '../access/addresses.ts';

/** These settings say which proxies the gateway trusts, and how many requests it accepts. */
export interface TrafficConfig {
  /** The gateway trusts the `X-Forwarded-*` headers of these proxies; null means of none. */
  readonly trustedProxies: readonly AddressRange[] | null;
  /** Clients may have this many connections. If it is null, they may use four of ten descriptors of the process. */
  readonly maxConnections: number | null;
  /** Bodies in flight may take this much memory, in MiB. */
  readonly maxBuffered: number;
  /** At most this many requests may be in flight to one sandbox. */
  readonly maxRequests: number;
  /** At most this many requests of one client may be in flight; null means no limit. */
  readonly maxClientRequests: number | null;
  /** One client may send this many requests per second; null means no limit. */
  readonly clientRate: number | null;
  /** One sandbox may get this many requests per second; null means no limit. */
  readonly sandboxRate: number | null;
}

/** These settings have no default. */
export const OPTIONAL_TRAFFIC = {
  trustedProxies: null,
  maxConnections: null,
  maxClientRequests: null,
  clientRate: null,
  sandboxRate: null,
} as const;

/** The flag that names the trusted proxies. */
export const TRUSTED_PROXIES = setting(
  '--trusted-proxies <ranges>',
  'proxies whose X-Forwarded-* headers are trusted, such as 10.0.0.0/8',
  parseList(readRange, 'It must be IP addresses or ranges of them, separated by commas.'),
);

/** The flags for limits. */
export const TRAFFIC_SETTINGS: readonly Setting[] = [
  setting(
    '--max-connections <number>',
    'maximum number of connections of clients; default: 40 % of the descriptors',
    parseCount,
  ),
  setting('--max-buffered <MiB>', 'maximum memory for bodies that nobody reads', parseCount, 256),
  setting('--max-requests <number>', 'maximum number of requests in flight to one sandbox', parseCount, 4096),
  setting('--max-client-requests <number>', 'maximum number of requests in flight of one client', parseCount),
  setting('--client-rate <number>', 'maximum number of requests per second of one client', parseCount),
  setting('--sandbox-rate <number>', 'maximum number of requests per second to one sandbox', parseCount),
];
