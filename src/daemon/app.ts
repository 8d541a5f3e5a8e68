import { cors as connectCors } from '@connectrpc/connect';
import cors from '@fastify/cors';
import Fastify, { type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { EnvdError, HttpError } from '../base/errors.ts';
import type { Transfers } from '../base/tally.ts';
import { INTERFACE_VERSION } from '../base/version.ts';
import { countDownloads, logOperations } from './rest/accounting.ts';
import { gate } from './rest/auth.ts';
import { clientErrorHandler, refuseExpectation } from './rest/client-errors.ts';
import { sendError } from './rest/errors.ts';
import { leaveBodies } from './rest/requests.ts';
import { fileRoutes } from './rest/routes/files.ts';
import { envsRoutes, healthRoutes, initRoutes, metricsRoutes } from './rest/routes/guest.ts';
import { collapseRoutes, freezeRoutes, fsfreezeRoutes } from './rest/routes/pause.ts';
import { mountConnect } from './rpc/mount.ts';
import type { RpcDependencies } from './rpc/router.ts';
import type { Collapser } from './services/collapse/collapse.ts';
import type { FileServices } from './services/files/services.ts';
import type { FilesystemFreezer } from './services/freeze/filesystem-freezer.ts';
import type { Freezer } from './services/freeze/freezer.ts';
import type { MetricsReader } from './services/guest/metrics.ts';
import type { Init } from './services/init/init.ts';
import type { CountedWatcher } from './services/watch/counted-watcher.ts';

/** What the routes and RPCs call. */
export interface AppServices extends RpcDependencies {
  readonly init: Init;
  readonly metrics: MetricsReader;
  readonly files: FileServices;
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  readonly collapser: Collapser;
  readonly watcher: CountedWatcher;
  readonly uploads: Transfers;
  readonly downloads: Transfers;
}

export interface AppOptions {
  /** Of the build. */
  readonly version: string;
  readonly logger: Logger;
  /** Aborts when the daemon stops: its reason ends the streams. */
  readonly shutdown: AbortSignal;
}

// Longer than the 620 s of a proxy in front, so that it is always the proxy that closes an idle connection.
const KEEP_ALIVE_MS = 640_000;
/** Those that operations have. */
const METHODS = ['GET', 'HEAD', 'POST'] as const;
const CORS_MAX_AGE_S = 7200;
/** What a page may read beside the protocols' own: the contract's, then what resuming and checking a download takes. */
const EXPOSED_HEADERS = [
  ...['Location', 'Cache-Control', 'X-Content-Type-Options'],
  ...['Accept-Ranges', 'Content-Disposition', 'Content-Range', 'ETag', 'Repr-Digest'],
];

/** The HTTP server, not listening yet. Hooks run in the order in which they stand here. */
export function buildApp(services: AppServices, { version, logger, shutdown }: AppOptions): FastifyInstance {
  const app = Fastify({
    // Fastify's own lines about requests and listening are ours to write.
    loggerInstance: logger.child({}, { level: logger.isLevelEnabled('warn') ? 'warn' : logger.level }),
    // One for all: numbering the requests costs more than it tells.
    childLoggerFactory: (parent) => parent,
    keepAliveTimeout: KEEP_ALIVE_MS,
    requestTimeout: 0,
    connectionTimeout: 0,
    forceCloseConnections: true,
    // Node's own refusal has no body.
    http: { requireHostHeader: false },
    clientErrorHandler: clientErrorHandler(),
    frameworkErrors: (error, _request, reply) => void sendError(reply, error),
  }) as unknown as FastifyInstance;
  app.server.on('checkExpectation', refuseExpectation);

  leaveBodies(app);
  logOperations(app, logger);
  allowAnyOrigin(app);
  forbidCaching(app);
  requireHost(app);
  gate(app, services.guest);
  countDownloads(app, services.downloads);
  shapeErrors(app);

  healthRoutes(app);
  metricsRoutes(app, services.metrics, { ...services, version });
  envsRoutes(app, services.guest);
  initRoutes(app, services.init, INTERFACE_VERSION);
  fileRoutes(app, services.files);
  freezeRoutes(app, services.freezer);
  fsfreezeRoutes(app, services.filesystemFreezer);
  collapseRoutes(app, services.collapser);
  mountConnect(app, services, shutdown);
  return app;
}

function allowAnyOrigin(app: FastifyInstance): void {
  app.register(cors, {
    origin: '*',
    // Not every OPTIONS is a browser's.
    strictPreflight: false,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposedHeaders: [...connectCors.exposedHeaders, ...EXPOSED_HEADERS].join(', '),
    maxAge: CORS_MAX_AGE_S,
  });
}

/** File downloads take the header away again: they have validators. */
function forbidCaching(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.header('cache-control', 'no-store');
    done();
  });
}

/** RFC 9112, section 3.2. */
function requireHost(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (request.headers.host !== undefined || request.raw.httpVersion === '1.0') return done();
    reply.header('connection', 'close');
    done(new EnvdError('invalid_argument', 'header Host is missing'));
  });
}

function shapeErrors(app: FastifyInstance): void {
  app.setErrorHandler((error, request, reply) => {
    request.failure = error;
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
