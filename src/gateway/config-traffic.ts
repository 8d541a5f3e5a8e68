import { parseCount, parseList, type Setting, setting } from '../base/settings.ts';
import { type AddressRange, readRange } from './access/addresses.ts';

/** Whom the gateway believes, and how much it takes. */
export interface TrafficConfig {
  /** Proxies in front whose `X-Forwarded-*` count; null: nobody's. */
  readonly trustedProxies: readonly AddressRange[] | null;
  /** The most requests that may be in flight to one sandbox. */
  readonly maxRequests: number;
  /** The same of one client; null: not limited. */
  readonly maxClientRequests: number | null;
  /** Requests a second of one client; null: not limited. */
  readonly clientRate: number | null;
  /** Requests a second to one sandbox; null: not limited. */
  readonly sandboxRate: number | null;
}

/** Those that may be absent. */
export const OPTIONAL_TRAFFIC = {
  trustedProxies: null,
  maxClientRequests: null,
  clientRate: null,
  sandboxRate: null,
} as const;

/** These settings in the table of flags. */
export const TRAFFIC_SETTINGS: readonly Setting[] = [
  setting(
    '--trusted-proxies <ranges>',
    'proxies in front whose X-Forwarded-* count',
    parseList(readRange, 'It must be IP addresses or ranges of them, separated by commas.'),
  ),
  setting('--max-requests <number>', 'limit of requests in flight to one sandbox', parseCount, 4096),
  setting('--max-client-requests <number>', 'limit of requests in flight of one client', parseCount),
  setting('--client-rate <number>', 'limit of requests a second of one client', parseCount),
  setting('--sandbox-rate <number>', 'limit of requests a second to one sandbox', parseCount),
];
