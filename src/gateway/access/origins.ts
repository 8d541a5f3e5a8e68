import type { IncomingHttpHeaders } from 'node:http';

/** Returns whether the page that a browser names in `Origin` is one of the host to which the request is sent. */
export function isOwnOrigin({ origin = '', host = '' }: IncomingHttpHeaders): boolean {
  return /^https?:\/\/(.+)$/.exec(origin)?.[1] === host.toLowerCase();
}
