import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';

/** A label has the form `<port>-<id>`. Host names have no case, so no label can name an id with upper-case letters. */
const LABEL = /^([1-9]\d{0,4})-([a-z0-9][a-z0-9_-]*)$/;
/** These ids fit into a label with any port, because a label has at most 63 characters (RFC 1035, section 2.3.4). */
const NAMEABLE = /^[a-z0-9](?:[a-z0-9_-]{0,55}[a-z0-9_])?$/;

/** A host name names a sandbox and one of its ports. */
export interface Name {
  readonly id: string;
  readonly port: number;
}

/** Returns whether a sandbox can be reached as `<port>-<id>.<domain>`. */
export function isNameable(id: string): boolean {
  return NAMEABLE.test(id);
}

/**
 * Returns the sandbox that the host of a request names as `<port>-<id>.<domain>`, or null if it names none. Throws
 * `invalid_argument` for a malformed name and for an ambiguous host.
 */
export function readName(request: IncomingMessage, domain: string): Name | null {
  const host = hostOf(request);
  if (!host?.endsWith(`.${domain}`)) return null;
  const label = host.slice(0, -domain.length - 1);
  if (!/^\d/.test(label)) return null;
  const [, port, id] = LABEL.exec(label) ?? [];
  if (id !== undefined && Number(port) <= 65535) return { id, port: Number(port) };
  const message = `the host '${host.slice(0, 255)}' names no sandbox: it must be <port>-<id>.${domain}`;
  throw new EnvdError('invalid_argument', message);
}

/**
 * Returns the host in lower case, without port and final dot. An absolute target (RFC 9112, section 3.2.2) must have the same
 * one.
 */
function hostOf({ url = '', headersDistinct }: IncomingMessage): string | null {
  const [host = null, ...others] = (headersDistinct.host ?? []).map(nameIn);
  if (others.length > 0) {
    const message = `header Host must be given once, not ${others.length + 1} times`;
    throw new EnvdError('invalid_argument', message);
  }
  const authority = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
  if (authority === undefined || nameIn(authority) === host) return host;
  // This is refused, because servers behind the gateway may disagree on which of the two counts.
  throw new EnvdError('invalid_argument', 'the request target and the Host header must name the same host');
}

function nameIn(authority: string): string {
  return authority.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
}
