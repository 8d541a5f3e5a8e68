import type { IncomingMessage, ServerResponse } from 'node:http';
import { withIds } from '../base/call-ids.ts';
import { hostFault } from '../base/client-errors.ts';
import type { CallLog } from './calls/call-log.ts';
import type { SharedLimits } from './calls/call-scope.ts';
import type { InitCalls } from './rest/init-calls.ts';

interface FirstOptions {
  readonly calls: CallLog;
  readonly shared: SharedLimits;
  readonly init: InitCalls;
  /** The headers of every response, names and values in turn. */
  readonly head: readonly string[];
}

/**
 * Serves `GET /health` and `POST /init`, which the platform calls after each start and resume: before the routes are loaded, and
 * without touching them. Takes only requests that every hook of theirs would pass unchanged, and leaves all others to them.
 */
export class FirstCalls {
  readonly #options: FirstOptions;

  constructor(options: FirstOptions) {
    this.#options = options;
  }

  /** Serves the request and returns true, or returns false without effect. */
  serve(request: IncomingMessage, response: ServerResponse): boolean {
    const { method, url } = request;
    if (method === 'GET' && url === '/health') return this.#serveHealth(request, response);
    return method === 'POST' && url === '/init' && this.#serveInit(request, response);
  }

  #serveHealth(request: IncomingMessage, response: ServerResponse): boolean {
    if (!this.#serves(request)) return false;
    const { calls, head } = this.#options;
    calls.begin('GET /health', request, response);
    response.writeHead(204, [...withIds(head, request)]).end();
    return true;
  }

  /** The token is in the body. The routes refuse bodies in transfer codings. */
  #serveInit(request: IncomingMessage, response: ServerResponse): boolean {
    const { 'transfer-encoding': coding = 'chunked' } = request.headers;
    if (coding !== 'chunked' || !this.#serves(request)) return false;
    const { calls, head, init } = this.#options;
    void init.serve(calls.begin('POST /init', request, response), withIds(head, request));
    return true;
  }

  #serves(request: IncomingMessage): boolean {
    return hostFault(request) === null && !this.#options.shared.shutdown.signal.aborted;
  }
}
