import { parseCount, parseList, type Setting, setting } from '../../base/program/settings.ts';
import { type AddressRange, readRange } from '../access/addresses.ts';

/** Which proxies the gateway trusts, and how many requests it takes. */
export interface TrafficConfig {
  /** Proxies in front whose `X-Forwarded-*` is believed; null: none. */
  readonly trustedProxies: readonly AddressRange[] | null;
  /** The most connections of clients; null: four of ten of the descriptors of the process. */
  readonly maxConnections: number | null;
  /** The most of the bodies in flight that is kept in memory, in MiB. */
  readonly maxBuffered: number;
  /** The most requests that may be in flight to one sandbox. */
  readonly maxRequests: number;
  /** The same for one client; null: unlimited. */
  readonly maxClientRequests: number | null;
  /** Requests per second of one client; null: unlimited. */
  readonly clientRate: number | null;
  /** Requests per second to one sandbox; null: unlimited. */
  readonly sandboxRate: number | null;
}

/** Settings without a default. */
export const OPTIONAL_TRAFFIC = {
  trustedProxies: null,
  maxConnections: null,
  maxClientRequests: null,
  clientRate: null,
  sandboxRate: null,
} as const;

/** The flag that says who is trusted. */
export const TRUSTED_PROXIES = setting(
  '--trusted-proxies <ranges>',
  'proxies in front whose X-Forwarded-* count',
  parseList(readRange, 'It must be IP addresses or ranges of them, separated by commas.'),
);

/** The limits in the table of flags. */
export const TRAFFIC_SETTINGS: readonly Setting[] = [
  setting('--max-connections <number>', 'limit of connections of clients', parseCount),
  setting('--max-buffered <MiB>', 'limit of bodies in memory that nobody reads', parseCount, 256),
  setting('--max-requests <number>', 'limit of requests in flight to one sandbox', parseCount, 4096),
  setting('--max-client-requests <number>', 'limit of requests in flight of one client', parseCount),
  setting('--client-rate <number>', 'limit of requests a second of one client', parseCount),
  setting('--sandbox-rate <number>', 'limit of requests a second to one sandbox', parseCount),
];
