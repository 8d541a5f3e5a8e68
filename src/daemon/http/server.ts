import { createServer, type RequestListener, type Server } from 'node:http';
import Fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { AbortRelay } from '../../base/abort.ts';
import { EnvdError, HttpError } from '../../base/errors.ts';
import { CallTally } from '../../base/http/call-tally.ts';
import type { Connections } from '../../base/http/connections.ts';
import { admitRequests } from './admission/admission.ts';
import { CallLog } from './admission/call-log.ts';
import { sendError } from './admission/errors.ts';
import { disableBodyParsing } from './admission/requests.ts';
import { StreamServer } from './connect/connect-stream.ts';
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
  /** The descriptor of the listening socket; -1: it does not listen yet. */
  listener = -1;
  readonly #fastify: FastifyInstance;
  readonly #streams: StreamServer;

  constructor(services: AppServices, options: AppOptions) {
    const { requests, unread, shutdown, logger, connections } = options;
    const limits = { shutdown: new AbortRelay(shutdown), requests, unread };
    const tally = new CallTally();
    const calls = new CallLog(logger, limits, tally, services.downloads);
    this.#streams = new StreamServer(unread);
    this.#fastify = createFastify(logger, connections);
    this.server = this.#fastify.server;
    admitRequests(this.#fastify, calls, services.guest);
    shapeErrors(this.#fastify);
    registerRoutes(this.#fastify, services, options, { tally, limits, streams: this.#streams });
  }

  /** Accepts connections of a socket that listens, which belongs to the server from then on. Throws listen(2)'s errors. */
  async listen(descriptor: number): Promise<void> {
    // Without a host Fastify would listen at each address of `localhost`, too.
    const options = { host: '0.0.0.0', fd: descriptor };
    await this.#fastify.listen(options);
    this.listener = descriptor;
  }

  /** Drops buffers of streams that are not in flight, to keep them out of a snapshot. */
  dropBuffers(): void {
    this.#streams.dropBuffers();
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
