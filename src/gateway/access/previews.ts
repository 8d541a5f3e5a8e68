import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isOwnOrigin } from './origins.ts';

const TOKEN_BYTES = 32;
/** `<expires>.<signature>`: Unix seconds, and HMAC-SHA256 in base64url. */
const PASS = /^([1-9]\d{0,11})\.([\w-]{43})$/;
/** The most cookies of one request that are looked at. Pages of other sandboxes may set some of this name. */
const MOST_COOKIES = 32;

/**
 * Returns the token that lets requests reach the ports of a sandbox, and signs its preview links, as a part of its record. A new one makes
 * earlier tokens and links invalid.
 */
export function trafficTokenFor(allowPublicTraffic: boolean | null = null): {
  readonly trafficToken?: string | null;
} {
  if (allowPublicTraffic === null) return {};
  return { trafficToken: allowPublicTraffic ? null : randomBytes(TOKEN_BYTES).toString('hex') };
}

/** What a request shows to reach a private sandbox. */
export interface PreviewCredentials {
  /** Values of the header for the traffic token. */
  readonly tokens: readonly string[];
  /** Passes in cookies that count. */
  readonly cookies: readonly string[];
  /** Values of the header for the token of the daemon. */
  readonly accessTokens: readonly string[];
  /** The pass in the query of a preview link; null: none. */
  readonly link: string | null;
  /** Whether a link may be turned into a cookie: the host is that of one port of one sandbox, and the request can be redirected. */
  readonly canRedirect: boolean;
  /** Whether the client came by TLS. */
  readonly isSecure: boolean;
}

/** The tokens of a sandbox: for its ports, and of its daemon. */
export interface Tokens {
  readonly trafficToken?: string | null;
  readonly accessToken: string | null;
}

/** A request that may pass: for how long, in ms (infinity: without an end), and where a link leads once the cookie is set. */
export interface Admitted {
  readonly leftMs: number;
  readonly redirect?: { readonly location: string; readonly cookie: string };
}

/** Admits requests to private sandboxes: by their traffic token in a header, or by a pass in a link and then in a cookie. */
export class Previews {
  readonly tokenHeader: string;
  /** The name of the cookie, and of the parameter of a link. */
  readonly name: string;

  /** @param prefix of the headers that name a sandbox */
  constructor(prefix: string) {
    this.tokenHeader = `${prefix}-Traffic-Access-Token`;
    this.name = `${prefix.toLowerCase()}-preview`;
  }

  /** Reads what a request shows. `target` is its path with its query. */
  read(
    request: IncomingMessage,
    target: string,
    more: Pick<PreviewCredentials, 'canRedirect' | 'isSecure'>,
  ): PreviewCredentials {
    const { headers, headersDistinct } = request;
    return {
      tokens: headersDistinct[this.tokenHeader.toLowerCase()] ?? [],
      accessTokens: headersDistinct['x-access-token'] ?? [],
      cookies: (isOfOwnPage(request) ? cookiesIn(headers) : [])
        .filter(([name]) => name === this.name)
        .map(([, value]) => value)
        .slice(0, MOST_COOKIES),
      link: this.#passIn(target),
      ...more,
    };
  }

  /**
   * Returns whether a request for a port may pass; null: it may not.
   * @param token of the sandbox
   * @param port as the client names it
   * @param now Unix ms
   */
  admit(
    token: string,
    port: number,
    target: string,
    shown: PreviewCredentials,
    now: number,
  ): Admitted | null {
    if (shown.tokens.length === 1 && isEqual(shown.tokens[0] ?? '', token))
      return { leftMs: Number.POSITIVE_INFINITY };
    const leftMs = (pass: string) => leftOf(token, port, pass, now);
    const byLink = shown.link === null ? 0 : leftMs(shown.link);
    if (byLink > 0 && shown.canRedirect)
      return { leftMs: byLink, redirect: this.#redirect(target, byLink, shown) };
    const byCookie = Math.max(0, ...shown.cookies.map(leftMs));
    return byCookie > 0 ? { leftMs: byCookie } : null;
  }

  /**
   * Returns whether a request for the daemon of a sandbox shows a token of that sandbox, which it needs to wake a private one. The
   * daemon itself cannot be asked while it is paused.
   */
  hasToken({ trafficToken, accessToken }: Tokens, shown: PreviewCredentials): boolean {
    const isShown = (values: readonly string[], token: string | null = null) =>
      token !== null && values.length === 1 && isEqual(values[0] ?? '', token);
    return isShown(shown.tokens, trafficToken) || isShown(shown.accessTokens, accessToken);
  }

  /** Returns the target of a link to `target` that is valid until `expires` (Unix seconds). */
  link(token: string, port: number, target: string, expires: number): string {
    const [path = '', fragment] = target.split(/(#.*)$/s);
    const pass = `${expires}.${signatureOf(token, port, expires)}`;
    return `${path}${path.includes('?') ? '&' : '?'}${this.name}=${pass}${fragment ?? ''}`;
  }

  /**
   * Removes what is shown to the gateway, which the sandbox must not see. `target` is the path with its query. Returns it without
   * passes, which a link has that was not turned into a cookie.
   */
  strip({ headers, headersDistinct }: IncomingMessage, target: string): string {
    delete headers[this.tokenHeader.toLowerCase()];
    if (headers.referer !== undefined) {
      headers.referer = this.#withoutPass(headers.referer);
      delete headersDistinct.referer;
    }
    this.#stripCookies(headers, headersDistinct);
    return this.#withoutPass(target);
  }

  #stripCookies(headers: IncomingHttpHeaders, headersDistinct: NodeJS.Dict<string[]>): void {
    if (headers.cookie === undefined) return;
    // One of several headers would be forwarded as it came.
    delete headersDistinct.cookie;
    const left = cookiesIn(headers).filter(([name]) => name !== this.name);
    if (left.length === 0) delete headers.cookie;
    else headers.cookie = left.map(([, , text]) => text).join('; ');
  }

  #redirect(target: string, leftMs: number, { link, isSecure }: PreviewCredentials) {
    const rest = this.#withoutPass(target);
    const attributes = [
      `${this.name}=${link}`,
      'Path=/',
      `Max-Age=${Math.floor(leftMs / 1000)}`,
      'HttpOnly',
      'SameSite=Lax',
      ...(isSecure ? ['Secure'] : []),
    ];
    // Browsers take what follows two slashes for a host.
    return { location: /^\/[/\\]/.test(rest) ? `/.${rest}` : rest, cookie: attributes.join('; ') };
  }

  /** Returns the first pass in the query of a target, or null. */
  #passIn(target: string): string | null {
    const [, ...queries] = target.split('?');
    const pairs = queries.join('?').split('&');
    return pairs.find((pair) => this.#isPass(pair))?.slice(this.name.length + 1) ?? null;
  }

  #withoutPass(target: string): string {
    const [path = '', ...queries] = target.split('?');
    const pairs = queries.join('?').split('&');
    const left = pairs.filter((pair) => !this.#isPass(pair));
    if (left.length === pairs.length) return target;
    return left.length === 0 ? path : `${path}?${left.join('&')}`;
  }

  #isPass(pair: string): boolean {
    return pair.startsWith(`${this.name}=`);
  }
}

/** For how long a pass is still valid, in ms; 0: it is not. */
function leftOf(token: string, port: number, pass: string, now: number): number {
  const [, expires, signature = ''] = PASS.exec(pass) ?? [];
  const leftMs = Number(expires ?? 0) * 1000 - now;
  return leftMs > 0 && isEqual(signature, signatureOf(token, port, Number(expires))) ? leftMs : 0;
}

/** By the token of one sandbox, so that no pass outlives it or is valid for another one. */
function signatureOf(token: string, port: number, expires: number): string {
  return createHmac('sha256', token).update(`preview:${port}:${expires}`).digest('base64url');
}

function isEqual(shown: string, wanted: string): boolean {
  const [one, other] = [Buffer.from(shown), Buffer.from(wanted)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/**
 * Returns whether a cookie of a request counts: the page of this very host has sent it, or a visitor who opens one. Browsers send the
 * cookie for pages of other sandboxes too, because all hosts of a domain are one site. Without TLS, they do not say which page has
 * asked, unless that could change something.
 */
function isOfOwnPage({ method = '', headers }: IncomingMessage): boolean {
  const { 'sec-fetch-site': site = 'none' } = headers;
  if (headers.origin !== undefined && !isOwnOrigin(headers)) return false;
  const isOpened = headers['sec-fetch-mode'] === 'navigate' && headers['sec-fetch-dest'] === 'document';
  return site === 'none' || site === 'same-origin' || (isOpened && ['GET', 'HEAD'].includes(method));
}

/** The cookies of a request: name, value, and the text of both. */
function cookiesIn({ cookie = '' }: IncomingHttpHeaders): readonly (readonly [string, string, string])[] {
  return cookie
    .split(';')
    .map((text) => text.trim())
    .filter(Boolean)
    .map((text) => {
      const [name = '', ...value] = text.split('=');
      return [name.trim(), value.join('=').trim(), text] as const;
    });
}
