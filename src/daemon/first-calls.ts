import type { IncomingMessage } from 'node:http';
import { hostFault } from '../base/client-errors.ts';
import type { CallLog } from './calls/call-log.ts';
import type { SharedLimits } from './calls/call-scope.ts';
import { DIRECT_LINES, type DirectResponse, linesOf } from './heads.ts';
import type { InitCalls } from './rest/init-calls.ts';

interface FirstOptions {
  readonly calls: CallLog;
  readonly shared: SharedLimits;
  readonly init: InitCalls;
}

/**
 * Serves `GET /health` and `POST /init`, which the platform calls after each start and resume: before the routes are loaded, and
 * without touching them. Takes only requests that every hook of theirs would pass unchanged, and leaves all others to them.
 */
export class FirstCalls {
  readonly #options: FirstOptions;
  readonly #initLines: string;

  constructor(options: FirstOptions) {
    this.#options = options;
    this.#initLines = DIRECT_LINES + linesOf([options.init.version]);
  }

  /** Serves the request and returns true, or returns false without effect. */
  serve(request: IncomingMessage, response: DirectResponse): boolean {
    const { method, url } = request;
    if (method === 'GET' && url === '/health') return this.#serveHealth(request, response);
    return method === 'POST' && url === '/init' && this.#serveInit(request, response);
  }

  #serveHealth(request: IncomingMessage, response: DirectResponse): boolean {
    if (!this.#serves(request)) return false;
    this.#options.calls.begin('GET /health', request, response);
    response.begin(DIRECT_LINES);
    response.writeHead(204).end();
    return true;
  }

  /** The token is in the body. The routes refuse bodies in transfer codings. */
  #serveInit(request: IncomingMessage, response: DirectResponse): boolean {
    const { 'transfer-encoding': coding = 'chunked' } = request.headers;
    if (coding !== 'chunked' || !this.#serves(request)) return false;
    const { calls, init } = this.#options;
    response.begin(this.#initLines);
    void init.serve(calls.begin('POST /init', request, response), []);
    return true;
  }

  #serves(request: IncomingMessage): boolean {
    return hostFault(request) === null && !this.#options.shared.shutdown.signal.aborted;
  }
}
