import type { IncomingMessage } from 'node:http';
import { EnvdError } from '../../base/errors.ts';

/** `<port>-<id>`. Host names have no case: an id with upper-case letters cannot be named. */
const LABEL = /^([1-9]\d{0,4})-([a-z0-9][a-z0-9_-]*)$/;
/** Ids that fit into a host name with any port: a label has at most 63 characters. */
const NAMEABLE = /^[a-z0-9](?:[a-z0-9_-]{0,55}[a-z0-9_])?$/;

/** A sandbox and one of its ports, as a host name gives them. */
export interface Name {
  readonly id: string;
  readonly port: number;
}

/** Whether a sandbox can be reached as `<port>-<id>.<domain>`. */
export function isNameable(id: string): boolean {
  return NAMEABLE.test(id);
}

/**
 * The sandbox that the host of a request names, `<port>-<id>.<domain>`; null when it names none. Throws
 * `invalid_argument` for a malformed name, and when the host is ambiguous.
 * @param header where the host is, in lower case: `host`, unless a proxy asks
 */
export function readName(request: IncomingMessage, domain: string, header: string): Name | null {
  const host = hostOf(request, header);
  if (!host?.endsWith(`.${domain}`)) return null;
  const label = host.slice(0, -domain.length - 1);
  if (!/^\d/.test(label)) return null;
  const [, port, id] = LABEL.exec(label) ?? [];
  if (id !== undefined && Number(port) <= 65535) return { id, port: Number(port) };
  const message = `the host '${host.slice(0, 255)}' names no sandbox: it must be <port>-<id>.${domain}`;
  throw new EnvdError('invalid_argument', message);
}

/** In lower case, without port and final dot; from an absolute target (RFC 9112, section 3.2.2), if that has one. */
function hostOf({ url = '', headersDistinct }: IncomingMessage, header: string): string | null {
  const [host = null, ...others] = (headersDistinct[header] ?? []).map(nameIn);
  if (others.length > 0) {
    const message = `the header that names the host must be given once, not ${others.length + 1} times`;
    throw new EnvdError('invalid_argument', message);
  }
  const authority = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
  if (authority === undefined || nameIn(authority) === host) return host;
  // Servers behind the gateway may disagree on which of the two counts.
  throw new EnvdError('invalid_argument', 'the request target and the Host header name different hosts');
}

function nameIn(authority: string): string {
  return authority.toLowerCase().replace(/:\d*$/, '').replace(/\.$/, '');
}
