import type { IncomingMessage } from 'node:http';

/** Where the page is, as browsers see it. */
export interface PageAddress {
  /** `http://127.0.0.1:41234`. */
  readonly origin: string;
  /** `127.0.0.1:41234`. */
  readonly host: string;
}

/** Methods that browsers send without asking and without an `Origin`, for links and pictures. */
const PLAIN = ['GET', 'HEAD'];

/**
 * Why a request cannot come from the page; null: it may. A name that was bound to this address anew (DNS rebinding) is found by the
 * host, a page of another origin by `Origin` and `Sec-Fetch-Site`, and by the header with the session, which it may not send.
 * `host`: that of the port that was called; `isOther`: that is not the one of the page.
 */
export function refusalOfCaller(
  { headers, method = '' }: IncomingMessage,
  page: PageAddress,
  { host, isOther }: { readonly host: string; readonly isOther: boolean },
): string | null {
  if (headers.host !== host && (isOther || headers.host !== page.host))
    return `this console is not '${String(headers.host).slice(0, 100)}'`;
  const { origin } = headers;
  if (origin === undefined && (isOther || !PLAIN.includes(method))) return 'the header Origin is missing';
  if (origin !== undefined && origin !== page.origin)
    return `the page at '${origin.slice(0, 100)}' must not call this console`;
  const site = headers['sec-fetch-site'];
  const allowed = isOther ? ['same-origin', 'same-site'] : ['same-origin', 'none'];
  if (site !== undefined && !allowed.includes(String(site))) return 'another site must not call this console';
  return null;
}
