import { createServer, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
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
import { Upgrades } from './websocket/upgrades.ts';

/** An idle connection is closed after this time. A proxy in front closes it after 620 s, so that the proxy is always first. */
const KEEP_ALIVE_MS = 640_000;
/** A client must send the whole head of a request within this time. By default Node applies `requestTimeout`, which is off. */
const HEAD_LIMIT_MS = 60_000;
const SERVER_OPTIONS = {
  keepAliveTimeout: KEEP_ALIVE_MS,
  requestTimeout: 0,
  headersTimeout: HEAD_LIMIT_MS,
  // `requireHost` checks the header instead, because Node's own response has no body.
  requireHostHeader: false,
};
/** A server that is being left closes its idle connections so often. */
const LEAVE_INTERVAL_MS = 5;
/** The methods of operations. */
const METHODS = ['GET', 'HEAD', 'POST'] as const;
/** No route has a Fastify schema. So Fastify need not load its schema compilers, which would make a start slower. */
const WITHOUT_SCHEMAS = { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } };

function refuseSchema(): never {
  throw new Error('a route has a schema');
}

/** The HTTP server with all operations. Fastify owns it, and every request takes the same path. */
export class App {
  readonly server: Server;
  readonly #fastify: FastifyInstance;

  constructor(services: AppServices, options: AppOptions) {
    const { requests, unread, shutdown, logger, connections } = options;
    const limits = { shutdown: new AbortRelay(shutdown), requests, unread };
    const tally = new CallTally();
    const calls = new CallLog(logger, limits, tally, services.downloads);
    const webSockets = options.extensions.flatMap((extension) => extension.webSockets ?? []);
    const upgrades = new Upgrades(webSockets, services.guest, calls, options);
    this.#fastify = createFastify(logger, connections, upgrades);
    this.server = this.#fastify.server;
    admitRequests(this.#fastify, calls, services.guest);
    shapeErrors(this.#fastify);
    upgrades.register(this.#fastify);
    registerRoutes(this.#fastify, services, options, tally, limits);
  }

  /** Accepts connections of a listening socket, which then belongs to the server. Throws listen(2)'s errors. */
  async listen(descriptor: number): Promise<void> {
    // Without a host, Fastify would also listen at each address of `localhost`.
    const options = { host: '0.0.0.0', fd: descriptor };
    await this.#fastify.listen(options);
  }

  /** Registers `/upgrade`. An upgrade replaces this server too, so it is created later. Must be called before `listen`. */
  addUpgrade(upgrade: Upgrade): void {
    upgradeRoutes(this.#fastify, upgrade);
  }

  /** Stops listening, and closes connections as they become idle. After `limitMs`, closes all connections. */
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

function createFastify(logger: Logger, connections: Connections, upgrades: Upgrades): FastifyInstance {
  // `CallLog` writes a line for each request, so Fastify's own lines are suppressed.
  const level = logger.isLevelEnabled('warn') ? 'warn' : logger.level;
  const loggerInstance: FastifyBaseLogger = logger.child({}, { level });
  const app = Fastify({
    loggerInstance,
    // All requests share one logger, because creating a child logger is expensive.
    childLoggerFactory: (parent) => parent,
    schemaController: WITHOUT_SCHEMAS,
    frameworkErrors: (error, _request, reply) => void sendError(reply, error),
    forceCloseConnections: true,
    // `Connections` answers unreadable requests.
    clientErrorHandler: () => {},
    serverFactory: (serve) => {
      const server = createServer({ ...SERVER_OPTIONS, shouldUpgradeCallback: upgrades.accepts });
      connections.attach(server, serve as RequestListener);
      server.on('upgrade', (request, socket, head) => upgrades.serve(request, socket as Socket, head));
      return server;
    },
  });
  disableBodyParsing(app);
  return app;
}

function shapeErrors(app: FastifyInstance): void {
  const withParameters: { readonly methods: readonly string[]; readonly form: RegExp }[] = [];
  app.addHook('onRoute', ({ url, method }) => {
    if (!url.includes(':')) return;
    const form = new RegExp(`^${url.replaceAll(/:\w+/g, '[^/]+')}$`);
    withParameters.push({ methods: [method].flat(), form });
  });
  const allows = (method: string, path: string) =>
    app.hasRoute({ method, url: path }) ||
    withParameters.some(({ methods, form }) => methods.includes(method) && form.test(path));
  app.setErrorHandler((error, request, reply) => {
    request.call.failure = error;
    return sendError(reply, error);
  });
  app.setNotFoundHandler((request, reply) => {
    const { method, url } = request;
    const [path = ''] = url.split('?', 1);
    const allowed = METHODS.filter((known) => allows(known, path)).join(', ');
    if (allowed === '') {
      return sendError(reply, new EnvdError('not_found', `no such operation: ${method} ${path}`));
    }
    const error = new HttpError(405, `method ${method} is not allowed for ${path}: use ${allowed}`);
    return sendError(reply.header('allow', allowed), error);
  });
}
