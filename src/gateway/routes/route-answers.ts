import type { IncomingMessage, ServerResponse } from 'node:http';
import { httpStatusOf, messageOf } from '../../base/errors.ts';
import type { Forwarded } from '../access/forwarded.ts';
import type { Keys } from '../access/keys.ts';
import type { Previews } from '../access/previews.ts';
import { refuse } from './answers.ts';
import { isRefusal, type Route } from './decisions.ts';
import { closeSignal } from './downstream.ts';
import type { RouteFinder } from './route-finder.ts';
import type { TargetReader } from './target.ts';

const PATH = /^\/gateway\/route(?=[/?]|$)/;
/** A target behind a prefix, as the client sent it. */
const PREFIXED = /^(\?refusal=pass&target=)?(\/.*)$/s;
/**
 * The default header with the request target that is asked about. `?uri-header=` names another one, `?host-header=`
 * that of the host.
 */
const URI_HEADER = 'x-original-uri';

export interface RouteAnswerParts {
  readonly keys: Keys;
  readonly targets: TargetReader;
  readonly previews: Previews;
  readonly forwarded: Pick<Forwarded, 'isSecure'>;
  readonly finder: RouteFinder;
}

/**
 * `GET /gateway/route`: tells a proxy in front where a request goes. The headers are those of the request that is asked
 * about, so only a platform key in `X-Gateway-Key` marks the question as the proxy's.
 */
export class RouteAnswers {
  readonly #parts: RouteAnswerParts;

  constructor(parts: RouteAnswerParts) {
    this.#parts = parts;
  }

  isFor({ url = '', headers }: IncomingMessage): boolean {
    const key = headers['x-gateway-key'];
    if (typeof key !== 'string' || !PATH.test(url)) return false;
    return this.#parts.keys.callerOf({ 'x-api-key': key })?.kind === 'platform';
  }

  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.resume();
    const asked = readQuestion(request);
    try {
      const route = await this.#find(request, asked, () => closeSignal(response));
      if ('to' in route && !(route.to.isPrivate && asked.passRefusals))
        response.writeHead(200, this.#headersOf(request, route.to, asked)).end();
      else if (asked.passRefusals) response.writeHead(200, unchanged(request)).end();
      else if ('id' in route) refuse(response, route, route.id);
    } catch (error) {
      if (asked.passRefusals) response.writeHead(200, unchanged(request)).end();
      else refuse(response, { code: httpStatusOf(error), message: messageOf(error) });
    }
  }

  async #find(request: IncomingMessage, { path, hostHeader }: Asked, closed: () => AbortSignal) {
    const { keys, targets, finder, previews, forwarded } = this.#parts;
    const target = targets.read(request, hostHeader);
    if (!target) throw targets.missing();
    const { headers } = request;
    const to = await finder.find({
      target,
      path,
      caller: () => keys.callerOf(headers),
      shown: previews.read(request, path, {
        canRedirect: target.isByHost,
        isSecure: forwarded.isSecure(request),
      }),
      via: headers.via,
      closed,
    });
    return isRefusal(to) ? { ...to, id: target.id } : { to };
  }

  #headersOf({ headers, headersDistinct, httpVersion }: IncomingMessage, to: Route, { cachedBy }: Asked) {
    const authority = `${to.address.includes(':') ? `[${to.address}]` : to.address}:${to.port}`;
    const keys = headersDistinct['x-api-key'] ?? [];
    const [key] = keys.some((value) => this.#parts.keys.isKey(value)) ? [] : keys;
    const isKept =
      cachedBy.toLowerCase() === this.#parts.targets.idHeader.toLowerCase() &&
      headers.via === undefined &&
      to.leftMs > KEPT_MS &&
      !to.isCounted &&
      !to.isPrivate;
    return {
      ...(isKept ? kept : common),
      'x-route-to': authority,
      // Envoy's clusters of type ORIGINAL_DST read this header.
      'x-envoy-original-dst-host': authority,
      'x-route-via': [headers.via, `${httpVersion} ${to.pseudonym}`].filter(Boolean).join(', '),
      ...(key !== undefined && { 'x-route-api-key': key }),
    };
  }
}

const common = { 'cache-control': 'no-store', 'content-length': 0 };

/**
 * How long nginx may cache an answer; the half second in its cache key makes that 0.5 s. Only for answers that depend
 * on nothing but that key: on no other header of the request, nor on `Via`. Not for a sandbox that expires meanwhile,
 * nor where requests are counted.
 */
const KEPT_MS = 1000;
const kept = { 'x-accel-expires': String(KEPT_MS / 1000), 'content-length': 0 };

/**
 * For proxies that pass a request on to the gateway itself: one that it refuses, in the contract's words, and one for a private port,
 * from which it removes what the sandbox must not see.
 */
function unchanged({ headers }: IncomingMessage) {
  const key = headers['x-api-key'];
  return {
    ...common,
    ...(headers.via !== undefined && { 'x-route-via': headers.via }),
    ...(typeof key === 'string' && { 'x-route-api-key': key }),
  };
}

/** The question of a proxy. */
interface Asked {
  /** The request target. */
  readonly path: string;
  /** The header with the host. */
  readonly hostHeader: string;
  readonly passRefusals: boolean;
  /** The header with the id that is part of the proxy's cache key; empty: the proxy does not cache. */
  readonly cachedBy: string;
}

function readQuestion({ url = '', headers }: IncomingMessage): Asked {
  const rest = url.replace(PATH, '');
  // Envoy puts the target behind a prefix; then no header counts, since it would be the client's.
  const [, passing, behind] = PREFIXED.exec(rest) ?? [];
  if (behind !== undefined)
    return { path: behind, hostHeader: 'host', passRefusals: passing !== undefined, cachedBy: '' };
  const query = new URLSearchParams(rest);
  const path = headers[query.get('uri-header')?.toLowerCase() ?? URI_HEADER];
  return {
    path: typeof path === 'string' ? path : '',
    hostHeader: query.get('host-header')?.toLowerCase() ?? 'host',
    passRefusals: query.get('refusal') === 'pass',
    cachedBy: query.get('cached-by') ?? '',
  };
}
