import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { type AddressRange, canonical, has, listOf } from './addresses.ts';

/** Proxies describe the client in these headers (in lower case). Many servers treat an underscore as a hyphen. */
const TELLS_OF_CLIENT =
  /^(?:forwarded|x[-_]forwarded(?:[-_].*)?|x[-_](?:real|client|cluster[-_]client)[-_]ip)$/;
/** Of `X-Forwarded-For`, only this many addresses are used and passed on: those nearest to the gateway. */
const MOST_HOPS = 32;

/** Describes the client to sandboxes. Passes on what trusted proxies in front say, and nothing that the client has written. */
export class Forwarded {
  readonly #trusted;

  /** @param trusted the addresses of trusted proxies, or null */
  constructor(trusted: readonly AddressRange[] | null) {
    this.#trusted = listOf(trusted ?? []);
  }

  /** Returns the address of the client, which is the last one that does not belong to a trusted proxy. */
  clientOf(request: IncomingMessage): string {
    let client = peerOf(request);
    for (const hop of hopsOf(request.headers).reverse()) {
      if (!this.#isTrusted(client)) break;
      const address = canonical(hop);
      if (address === null) break;
      client = address;
    }
    return client;
  }

  /** Returns whether the client came by TLS, as far as a trusted proxy says. */
  isSecure(request: IncomingMessage): boolean {
    return this.#isTrusted(peerOf(request)) && request.headers['x-forwarded-proto'] === 'https';
  }

  /** Rewrites the headers that describe the client of `request`. Adds the peer's address to what a trusted proxy says. */
  rewrite(headers: IncomingHttpHeaders, request: IncomingMessage): void {
    const peer = peerOf(request);
    if (!this.#isTrusted(peer))
      for (const name of Object.keys(headers)) if (TELLS_OF_CLIENT.test(name)) delete headers[name];
    headers['x-forwarded-for'] = [...hopsOf(headers), peer].slice(-MOST_HOPS).join(', ');
    headers['x-forwarded-proto'] ??= 'http';
    if (headers.host !== undefined) headers['x-forwarded-host'] ??= headers.host;
  }

  #isTrusted(address: string): boolean {
    return canonical(address) !== null && has(this.#trusted, address);
  }
}

/** Returns the address of the other end of the connection, or '' if it is closed already. */
function peerOf({ socket }: IncomingMessage): string {
  const { remoteAddress = '' } = socket;
  return canonical(remoteAddress) ?? remoteAddress;
}

function hopsOf({ 'x-forwarded-for': value = '' }: IncomingHttpHeaders): string[] {
  const hops = String(value).split(',').slice(-MOST_HOPS);
  return hops.map((hop) => hop.trim()).filter(Boolean);
}
