import type { PageAddress } from './request-checks.ts';

/** How long a browser remembers that the page may open streams, in seconds. */
const PREFLIGHT_S = 7200;
/** The headers that the page sends with a stream. */
const STREAM_HEADERS = [
  ...['content-type', 'connect-protocol-version', 'connect-timeout-ms', 'keepalive-ping-interval'],
  ...['x-console-session', 'x-console-sandbox', 'x-console-user'],
];

/** The headers of every answer. */
export function securityHeaders(): Readonly<Record<string, string>> {
  return {
    'cache-control': 'no-store',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
  };
}

/** The headers with which a browser lets the page open streams at the other ports, and no other page. */
export function pageHeaders({ origin }: PageAddress, isOther: boolean): Readonly<Record<string, string>> {
  if (!isOther) return {};
  return {
    'access-control-allow-origin': origin,
    'access-control-allow-methods': 'POST',
    'access-control-allow-headers': STREAM_HEADERS.join(', '),
    'access-control-max-age': String(PREFLIGHT_S),
    vary: 'Origin',
  };
}

/**
 * What the page may do: run its own scripts and nothing else, and connect to this console alone. The terminal sets styles in
 * elements and attributes, which load nothing, because pictures and fonts have their own rules.
 */
export function contentPolicy(streams: readonly string[]): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' blob:",
    `connect-src 'self' ${streams.join(' ')}`.trim(),
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}
