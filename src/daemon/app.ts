import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { Logger } from 'pino';
import { AbortRelay } from '../base/abort.ts';
import { CallTally } from '../base/call-tally.ts';
import { clientErrorHandler, refuseExpectation } from '../base/client-errors.ts';
import { INTERFACE_VERSION } from '../base/version.ts';
import { CallLog } from './calls/call-log.ts';
import { EarlyBodies } from './calls/early-bodies.ts';
import { FirstCalls } from './first-calls.ts';
import { DirectResponse } from './heads.ts';
import { listen, type Place } from './os/listen.ts';
import { InitCalls } from './rest/init-calls.ts';
import type { AppOptions, AppServices, CallParts, Routes } from './routes.ts';

export type { AppOptions, AppServices } from './routes.ts';

// Idle timeout; longer than the 620 s of a proxy in front, so that the proxy always closes idle connections first.
const KEEP_ALIVE_MS = 640_000;
/** Time to send a whole head. Without this, Node takes the limit of the whole request, which is none. */
const HEAD_LIMIT_MS = 60_000;
const SERVER_OPTIONS = {
  ServerResponse: DirectResponse,
  keepAliveTimeout: KEEP_ALIVE_MS,
  requestTimeout: 0,
  headersTimeout: HEAD_LIMIT_MS,
  // `requireHost` checks it: Node's own response has no body.
  requireHostHeader: false,
};

/**
 * The HTTP server. What `FirstCalls` does not take is served by the routes (routes.ts), which are loaded for the first such
 * request or by `load`: they are more than half of what a start would cost (docs/decisions/073-routes-are-loaded-later.md).
 */
export class App {
  readonly server: Server;
  readonly #buildRoutes: () => Promise<Routes>;
  readonly #logger: Logger;
  #loading: Promise<Routes> | null = null;
  #routes: Routes | null = null;

  constructor(services: AppServices, options: AppOptions) {
    this.#logger = options.logger;
    const parts = callParts(services, options);
    const first = new FirstCalls(parts);
    this.#buildRoutes = async () => (await import('./routes.ts')).buildRoutes(services, options, parts);
    this.server = createServer(SERVER_OPTIONS, (request, response) => {
      if (!first.serve(request, response)) this.#serve(request, response);
    });
    this.server.on('clientError', clientErrorHandler());
    this.server.on('checkExpectation', refuseExpectation);
    options.connections.guard(this.server);
  }

  /** Resolves when it listens. Throws the error of listen(2), or of a look-up of the address. */
  async listen(place: Place): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.server.once('error', reject);
    this.server.once('listening', resolve);
    listen(this.server, place);
    await promise;
    this.server.off('error', reject);
  }

  /** Loads the routes. Throws what an import throws; the next call tries again. */
  async load(): Promise<void> {
    this.#loading ??= this.#buildRoutes();
    try {
      this.#routes = await this.#loading;
    } catch (error) {
      this.#loading = null;
      throw error;
    }
  }

  /** Drops buffers of streams that are not in flight, to keep them out of a snapshot. */
  dropBuffers(): void {
    this.#routes?.dropBuffers();
  }

  /** Stops listening and ends all connections. */
  async close(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.server.close(() => resolve());
    this.server.closeAllConnections();
    await promise;
  }

  #serve(request: IncomingMessage, response: DirectResponse): void {
    if (this.#routes) this.#routes.serve(request, response);
    else void this.#loadAndServe(request, response);
  }

  async #loadAndServe(request: IncomingMessage, response: DirectResponse): Promise<void> {
    try {
      await this.load();
    } catch (error) {
      this.#logger.error({ err: error }, 'cannot load the routes: the connection is closed');
      response.destroy();
      return;
    }
    // Its client may have gone meanwhile.
    if (!response.destroyed) this.#serve(request, response);
  }
}

function callParts(services: AppServices, options: AppOptions): CallParts {
  const { requests, unread, shutdown, logger } = options;
  const shared = { shutdown: new AbortRelay(shutdown), requests, unread, bodies: new EarlyBodies() };
  const tally = new CallTally();
  const calls = new CallLog(logger, shared, tally, services.downloads);
  return { calls, tally, shared, init: new InitCalls(services.init, INTERFACE_VERSION, logger) };
}
