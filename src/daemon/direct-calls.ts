import type { IncomingMessage } from 'node:http';
import { hostFault } from '../base/client-errors.ts';
import type { CallLog } from './calls/call-log.ts';
import type { CallScope, SharedLimits } from './calls/call-scope.ts';
import { DIRECT_LINES, type DirectResponse, FILE_LINES } from './heads.ts';
import { hasAccess } from './rest/auth.ts';
import type { PlainDownloads } from './rest/routes/files/plain-downloads.ts';
import { streamCodecOf } from './rpc/connect-stream.ts';
import { type UnaryRoute, unaryCodecOf } from './rpc/connect-unary.ts';
import { recordFailure } from './rpc/errors.ts';
import { encodingOf, PROTOCOL_VERSION } from './rpc/mount.ts';
import { headersOf } from './rpc/request.ts';
import type { StreamRoute } from './rpc/router.ts';
import type { StreamPlaces } from './rpc/stream-places.ts';
import type { Guest } from './services/guest/guest.ts';

interface DirectOptions {
  readonly unary: readonly UnaryRoute[];
  readonly streams: readonly StreamRoute[];
  readonly places: StreamPlaces;
  readonly guest: Guest;
  readonly calls: CallLog;
  readonly shared: SharedLimits;
  readonly plain: PlainDownloads;
}

/** A route with the name of its operation, made once. */
interface Operation<Route> {
  readonly route: Route;
  readonly operation: string;
}

/**
 * Serves RPCs in the Connect protocol and small files without Fastify, whose routing and hooks take as much CPU as such a call
 * itself. Takes only requests that every hook would pass unchanged, and leaves all others to Fastify, which serves the same calls.
 */
export class DirectCalls {
  readonly #options: DirectOptions;
  readonly #unary: ReadonlyMap<string, Operation<UnaryRoute>>;
  readonly #streams: ReadonlyMap<string, Operation<StreamRoute>>;

  constructor(options: DirectOptions) {
    this.#options = options;
    this.#unary = byPath(options.unary);
    this.#streams = byPath(options.streams);
  }

  /** Serves the request and returns true, or returns false without effect. */
  serve(request: IncomingMessage, response: DirectResponse): boolean {
    const { method } = request;
    const { shutdown } = this.#options.shared;
    if (hostFault(request) !== null || shutdown.signal.aborted) return false;
    if (method === 'GET') return this.#serveFile(request, response);
    return method === 'POST' && (this.#serveUnary(request, response) || this.#serveStream(request, response));
  }

  #serveFile(request: IncomingMessage, response: DirectResponse): boolean {
    const { calls, plain } = this.#options;
    const begin = (path: string) => {
      calls.begin('GET /files', request, response).subject = { path };
      response.begin(FILE_LINES);
    };
    return plain.serve(request, response, begin);
  }

  #serveUnary(request: IncomingMessage, response: DirectResponse): boolean {
    const { guest, calls } = this.#options;
    const called = this.#unary.get(request.url ?? '');
    const codec = called && unaryCodecOf(request);
    if (!codec || !speaksOurVersion(request) || !hasAccess(request.headers, guest)) return false;
    const call = calls.begin(called.operation, request, response);
    const encoding = encodingOf(request.headers);
    response.begin(DIRECT_LINES);
    void finish(called.route.serve({ call, headers: headersOf(request), codec, encoding }), call);
    return true;
  }

  #serveStream(request: IncomingMessage, response: DirectResponse): boolean {
    const { guest, calls, places } = this.#options;
    const called = this.#streams.get(request.url ?? '');
    const codec = called && streamCodecOf(request.headers['content-type']);
    if (!codec || !speaksOurVersion(request) || !hasAccess(request.headers, guest)) return false;
    if (!places.take(response)) return false;
    const call = calls.begin(called.operation, request, response);
    response.begin(DIRECT_LINES);
    void finish(called.route.serve({ call, headers: headersOf(request), codec }), call);
    return true;
  }
}

function byPath<Route extends { readonly path: string }>(
  routes: readonly Route[],
): ReadonlyMap<string, Operation<Route>> {
  return new Map(routes.map((route) => [route.path, { route, operation: `POST ${route.path}` }]));
}

async function finish(served: Promise<unknown>, call: CallScope): Promise<void> {
  try {
    const error = await served;
    if (error !== null) recordFailure(call, error);
  } catch (error) {
    recordFailure(call, error);
    call.response.destroy();
  }
}

function speaksOurVersion({ headers: { 'connect-protocol-version': version } }: IncomingMessage): boolean {
  return version === undefined || version === PROTOCOL_VERSION;
}
