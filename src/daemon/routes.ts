import type { IncomingMessage } from 'node:http';
import cors from '@fastify/cors';
import Fastify, { type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import type { CallTally } from '../base/call-tally.ts';
import { hostFault } from '../base/client-errors.ts';
import type { Connections } from '../base/connections.ts';
import { EnvdError, HttpError } from '../base/errors.ts';
import type { Transfers } from '../base/tally.ts';
import type { Unread } from '../base/unread.ts';
import type { CallLog } from './calls/call-log.ts';
import type { SharedLimits } from './calls/call-scope.ts';
import { DirectCalls } from './direct-calls.ts';
import { type DirectResponse, EXPOSED_HEADERS } from './heads.ts';
import { requireAccessToken } from './rest/auth.ts';
import { sendError } from './rest/errors.ts';
import type { InitCalls } from './rest/init-calls.ts';
import type { LogFigures } from './rest/prometheus.ts';
import { beginCalls, disableBodyParsing } from './rest/requests.ts';
import { DownloadLimits } from './rest/routes/files/download-limits.ts';
import { PlainDownloads } from './rest/routes/files/plain-downloads.ts';
import { fileRoutes } from './rest/routes/files.ts';
import { envsRoutes, healthRoutes, initRoutes, metricsRoutes, portsRoutes } from './rest/routes/guest.ts';
import { collapseRoutes, freezeRoutes, fsfreezeRoutes } from './rest/routes/pause.ts';
import { upgradeRoutes } from './rest/routes/upgrade.ts';
import { StreamServer } from './rpc/connect-stream.ts';
import { mountConnect } from './rpc/mount.ts';
import { createRpc, type RpcDependencies } from './rpc/router.ts';
import type { StreamPlaces } from './rpc/stream-places.ts';
import type { Collapser } from './services/collapse/collapse.ts';
import { createFileServices } from './services/files/services.ts';
import type { FilesystemFreezer } from './services/freeze/filesystem-freezer.ts';
import type { Freezer } from './services/freeze/freezer.ts';
import type { Health } from './services/guest/health.ts';
import type { MetricsReader } from './services/guest/metrics.ts';
import type { Upgrade } from './services/handover/upgrade.ts';
import type { Init } from './services/init/init.ts';
import type { Forwards } from './services/ports/forwards.ts';
import type { WorkloadCgroups } from './services/process/cgroups.ts';
import type { CountedWatcher } from './services/watch/counted-watcher.ts';

/** The services that routes and RPCs call. */
export interface AppServices extends RpcDependencies {
  readonly cgroups: WorkloadCgroups;
  readonly init: Init;
  readonly metrics: MetricsReader;
  readonly health: Health;
  readonly freezer: Freezer;
  readonly filesystemFreezer: FilesystemFreezer;
  readonly collapser: Collapser;
  readonly upgrade: Upgrade;
  readonly ports: Forwards;
  readonly records: { readonly failures: number };
  readonly watcher: CountedWatcher;
  readonly uploads: Transfers;
  readonly downloads: Transfers;
}

export interface AppOptions {
  readonly connections: Connections;
  readonly places: StreamPlaces;
  /** Bounds the memory of requests that are being received and served. */
  readonly requests: Unread;
  /** Bounds output that clients have not read. */
  readonly unread: Unread;
  /** The version of the build. */
  readonly version: string;
  readonly logger: Logger;
  readonly log: LogFigures;
  /** Aborts when the daemon stops; open streams end with its reason. */
  readonly shutdown: AbortSignal;
}

/** What calls have in common, whoever serves them. */
export interface CallParts {
  readonly calls: CallLog;
  readonly tally: CallTally;
  readonly shared: SharedLimits;
  readonly init: InitCalls;
}

/** All operations. */
export interface Routes {
  serve(request: IncomingMessage, response: DirectResponse): void;
  dropBuffers(): void;
}

/** The methods of operations. */
const METHODS = ['GET', 'HEAD', 'POST'] as const;
const CORS_MAX_AGE_S = 7200;
/** Routes have no Fastify schemas, so that the schema compilers need not be loaded. */
const WITHOUT_SCHEMAS = { compilersFactory: { buildValidator: refuseSchema, buildSerializer: refuseSchema } };

function refuseSchema(): never {
  throw new Error('a route has a schema');
}

/** Builds all operations: Fastify serves what `DirectCalls` does not take. */
export async function buildRoutes(
  services: AppServices,
  options: AppOptions,
  parts: CallParts,
): Promise<Routes> {
  const { places, unread } = options;
  const { guest, entries, gate, uploads } = services;
  const files = createFileServices(guest, { ...entries, gate, uploads });
  const streams = new StreamServer(unread);
  const rpc = createRpc(services, streams);
  const limits = new DownloadLimits();
  const plain = new PlainDownloads({ files, limits });
  const direct = new DirectCalls({ ...rpc, ...parts, guest, places, plain });
  const app = createFastify(services, options, parts);
  restRoutes(app, services, options, parts);
  fileRoutes(app, files, limits);
  mountConnect(app, rpc, parts.shared, places);
  await app.ready();
  return {
    serve: (request, response) => {
      if (!direct.serve(request, response)) app.routing(request, response);
    },
    dropBuffers: () => streams.dropBuffers(),
  };
}

/** Fastify, which does not listen itself. Hooks run in the order in which they are added. */
function createFastify(
  { guest }: AppServices,
  { logger }: AppOptions,
  { calls }: CallParts,
): FastifyInstance {
  const app = Fastify({
    // Fastify's own lines about requests are suppressed; `CallLog` writes them.
    loggerInstance: logger.child({}, { level: logger.isLevelEnabled('warn') ? 'warn' : logger.level }),
    // One logger for all requests: a child logger per request is expensive.
    childLoggerFactory: (parent) => parent,
    schemaController: WITHOUT_SCHEMAS,
    frameworkErrors: (error, _request, reply) => void sendError(reply, error),
  }) as unknown as FastifyInstance;
  disableBodyParsing(app);
  beginCalls(app, calls);
  // First, since preflights are answered by the next.
  forbidCaching(app);
  allowAnyOrigin(app);
  requireHost(app);
  requireChunks(app);
  requireAccessToken(app, guest);
  shapeErrors(app);
  return app;
}

function restRoutes(
  app: FastifyInstance,
  services: AppServices,
  options: AppOptions,
  { init, tally }: CallParts,
): void {
  healthRoutes(app, services.health, services.guest);
  // Services last: the options may have more members, those of the configuration.
  metricsRoutes(app, services.metrics, { ...options, calls: tally, ...services });
  envsRoutes(app, services.guest);
  portsRoutes(app, services.ports);
  initRoutes(app, init);
  freezeRoutes(app, services.freezer);
  fsfreezeRoutes(app, services.filesystemFreezer);
  collapseRoutes(app, services.collapser);
  upgradeRoutes(app, services.upgrade);
}

function allowAnyOrigin(app: FastifyInstance): void {
  app.register(cors, {
    origin: '*',
    // OPTIONS requests that are no preflights are accepted.
    strictPreflight: false,
    methods: ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE'],
    exposedHeaders: EXPOSED_HEADERS,
    maxAge: CORS_MAX_AGE_S,
  });
}

/** File downloads remove the header: they have validators. */
function forbidCaching(app: FastifyInstance): void {
  app.addHook('onRequest', (_request, reply, done) => {
    reply.header('cache-control', 'no-store');
    done();
  });
}

function requireHost(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    const fault = hostFault(request.raw);
    if (fault === null) return done();
    reply.header('connection', 'close');
    done(new EnvdError('invalid_argument', fault));
  });
}

/** RFC 9112, section 6.1: Node takes what is coded otherwise, too, as it is. */
function requireChunks(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => {
    const coding = request.headers['transfer-encoding']?.toLowerCase() ?? 'chunked';
    if (coding === 'chunked') return done();
    done(new EnvdError('unimplemented', `transfer coding '${coding}' is not supported: use chunked`));
  });
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
