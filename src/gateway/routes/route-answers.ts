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
/** Envoy appends the target of the client's request to this prefix. */
const PREFIXED = /^(\?refusal=pass&target=)?(\/.*)$/s;
/** This header has the target of the request in question, unless `?uri-header=` names another one. */
const URI_HEADER = 'x-original-uri';

export interface RouteAnswerParts {
  readonly keys: Keys;
  readonly targets: TargetReader;
  readonly previews: Previews;
  readonly forwarded: Pick<Forwarded, 'isSecure'>;
  readonly finder: RouteFinder;
}

/**
 * Answers `GET /gateway/route`, by which a proxy in front asks where a request goes (docs/decisions/027-route-answers.md).
 * The question has the headers of the request, so only a platform key in `X-Gateway-Key` shows that the proxy asks.
 */
export class RouteAnswers {
  readonly #parts: RouteAnswerParts;

  constructor(parts: RouteAnswerParts) {
    this.#parts = parts;
  }

  /** Returns whether a request is the question of a proxy. */
  isFor({ url = '', headers }: IncomingMessage): boolean {
    const key = headers['x-gateway-key'];
    if (typeof key !== 'string' || !PATH.test(url)) return false;
    return this.#parts.keys.callerOf({ 'x-api-key': key })?.kind === 'platform';
  }

  /** Answers with the route, or with the refusal that the request would get. Never rejects. */
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
      // Clusters of the type ORIGINAL_DST in Envoy read this header.
      'x-envoy-original-dst-host': authority,
      'x-route-via': [headers.via, `${httpVersion} ${to.pseudonym}`].filter(Boolean).join(', '),
      ...(key !== undefined && { 'x-route-api-key': key }),
    };
  }
}

const common = { 'cache-control': 'no-store', 'content-length': 0 };

/**
 * nginx may cache an answer for this time, in ms. It caches it for half of the time, because the half second is part of its
 * cache key. An answer is cached only if it depends on nothing else than that key, if the sandbox does not expire meanwhile,
 * and if no rate limit counts the request.
 */
const KEPT_MS = 1000;
const kept = { 'x-accel-expires': String(KEPT_MS / 1000), 'content-length': 0 };

/**
 * Returns the headers for a proxy that sends a request to the gateway itself: one that the gateway refuses, in the contract's words,
 * and one for a private port, from which the gateway removes what the sandbox must not see.
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
  /** The target of the request in question. */
  readonly path: string;
  /** The name of the header with the host, in lower case. */
  readonly hostHeader: string;
  /** If true, a refusal is answered with 200 and without a route. */
  readonly passRefusals: boolean;
  /** The header with the id that is part of the proxy's cache key. It is empty if the proxy does not cache. */
  readonly cachedBy: string;
}

function readQuestion({ url = '', headers }: IncomingMessage): Asked {
  const rest = url.replace(PATH, '');
  // With the target behind the prefix, no header counts, because the client could have sent it.
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
