import { createServer, type RequestListener, type Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import Fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { AbortRelay } from '../../base/abort.ts';
import { EnvdError, HttpError } from '../../base/errors.ts';
import { CallTally } from '../../base/http/call-tally.ts';
import { type Connections, connectionsOf } from '../../base/http/connections.ts';
import type { Upgrade } from '../services/handover/upgrade.ts';
import { admitRequests } from './admission/admission.ts';
import { CallLog } from './admission/call-log.ts';
import { sendError } from './admission/errors.ts';
import { disableBodyParsing } from './admission/requests.ts';
import { upgradeRoutes } from './rest/upgrade.ts';
import { type AppOptions, type AppServices, registerRoutes } from './routes.ts';

// Idle timeout; longer than the 620 s of a proxy in front, so that the proxy always closes idle connections first.
const KEEP_ALIVE_MS = 640_000;
/** Time to send a whole head. Without this, Node takes the limit of the whole request, which is none. */
const HEAD_LIMIT_MS = 60_000;
const SERVER_OPTIONS = {
  keepAliveTimeout: KEEP_ALIVE_MS,
  requestTimeout: 0,
  headersTimeout: HEAD_LIMIT_MS,
  // `requireHost` checks it: Node's own response has no body.
  requireHostHeader: false,
};
/** Interval of looks whether connections are idle, in milliseconds. */
const LEAVE_INTERVAL_MS = 5;
/** The methods of operations. */
const METHODS = ['GET', 'HEAD', 'POST'] as const;
/** Routes have no Fastify schemas, so that the schema compilers need not be loaded. */
const WITHOUT_SCHEMAS = { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } };

function refuseSchema(): never {
  throw new Error('a route has a schema');
}

/** The HTTP server with all operations: Fastify owns it, and every request takes the same way. */
export class App {
  readonly server: Server;
  readonly #fastify: FastifyInstance;

  constructor(services: AppServices, options: AppOptions) {
    const { requests, unread, shutdown, logger, connections } = options;
    const limits = { shutdown: new AbortRelay(shutdown), requests, unread };
    const tally = new CallTally();
    const calls = new CallLog(logger, limits, tally, services.downloads);
    this.#fastify = createFastify(logger, connections);
    this.server = this.#fastify.server;
    admitRequests(this.#fastify, calls, services.guest);
    shapeErrors(this.#fastify);
    registerRoutes(this.#fastify, services, options, { tally, limits });
  }

  /** Accepts connections of a socket that listens, which belongs to the server from then on. Throws listen(2)'s errors. */
  async listen(descriptor: number): Promise<void> {
    // Without a host Fastify would listen at each address of `localhost`, too.
    const options = { host: '0.0.0.0', fd: descriptor };
    await this.#fastify.listen(options);
  }

  /** Registers the route of upgrades, which replace the server, too. To be called before it listens. */
  addUpgrade(upgrade: Upgrade): void {
    upgradeRoutes(this.#fastify, upgrade);
  }

  /** Stops listening, and closes connections as they become idle; after `limitMs` all. */
  async leave(limitMs: number): Promise<void> {
    this.server.close();
    for (let waited = 0; waited < limitMs; waited += LEAVE_INTERVAL_MS) {
      this.server.closeIdleConnections();
      if ((await connectionsOf(this.server)) === 0) return;
      await delay(LEAVE_INTERVAL_MS);
    }
    this.server.closeAllConnections();
  }

  /** Stops listening and ends all connections. */
  async close(): Promise<void> {
    await this.#fastify.close();
  }
}

function createFastify(logger: Logger, connections: Connections): FastifyInstance {
  // Fastify's own lines about requests are suppressed; `CallLog` writes them.
  const level = logger.isLevelEnabled('warn') ? 'warn' : logger.level;
  const loggerInstance: FastifyBaseLogger = logger.child({}, { level });
  const app = Fastify({
    loggerInstance,
    // One logger for all requests: a child logger per request is expensive.
    childLoggerFactory: (parent) => parent,
    schemaController: WITHOUT_SCHEMAS,
    frameworkErrors: (error, _request, reply) => void sendError(reply, error),
    forceCloseConnections: true,
    // `Connections` answers what cannot be read.
    clientErrorHandler: () => {},
    serverFactory: (serve) => {
      const server = createServer(SERVER_OPTIONS);
      connections.attach(server, serve as RequestListener);
      return server;
    },
  });
  disableBodyParsing(app);
  return app;
}

function shapeErrors(app: FastifyInstance): void {
  app.setErrorHandler((error, request, reply) => {
    request.call.failure = error;
    return sendError(reply, error);
  });
  app.setNotFoundHandler((request, reply) => {
    const { method, url } = request;
    const [path = ''] = url.split('?', 1);
    const allowed = METHODS.filter((known) => app.hasRoute({ method: known, url: path })).join(', ');
    if (allowed === '') {
      return sendError(reply, new EnvdError('not_found', `no such operation: ${method} ${path}`));
    }
    reply.header('allow', allowed);
    return sendError(
      reply,
      new HttpError(405, `method ${method} is not allowed for ${path}: use ${allowed}`),
    );
  });
}
