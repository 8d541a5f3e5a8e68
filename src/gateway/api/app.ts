import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
} from 'fastify';
import type { Logger } from 'pino';
import { EnvdError, errorBody, HttpError, httpStatusOf, messageOf } from '../../base/errors.ts';
import { idsOf, passOnIds } from '../../base/http/call-ids.ts';
import type { RefusalLines } from '../../base/http/refusal-lines.ts';
import type { InFlight } from '../access/in-flight.ts';
import type { Caller, Keys } from '../access/keys.ts';
import { QuotaReached } from '../access/quotas.ts';
import type { Rate } from '../access/rates.ts';
import type { MachineComparison } from '../expiry/machine-comparison.ts';
import type { Outcome } from '../leases/sandbox.ts';
import { OWN_HEADERS, retryAfterOf } from '../routes/answers.ts';
import type { Drain } from '../routes/drain.ts';
import type { TargetReader } from '../routes/target.ts';
import { CreateRoutes } from './create-routes.ts';
import type { Creations } from './creations.ts';
import { type EventRouteParts, eventRoutes } from './event-routes.ts';
import type { Extensions } from './extensions.ts';
import { type Hosts, hostRoutes } from './hosts.ts';
import type { Operations } from './operations.ts';
import { type PreviewRouteParts, previewRoutes } from './preview-routes.ts';
import {
  differencesRoute,
  healthRoute,
  metricsRoute,
  pauseRoutes,
  registrationRoutes,
  type SandboxMetrics,
  sandboxRoutes,
  timeRoutes,
} from './routes.ts';
import { templateRoutes } from './templates.ts';
import { type ViewParts, Views } from './views.ts';

export interface PlatformParts
  extends ViewParts,
    Pick<EventRouteParts, 'shared'>,
    Pick<PreviewRouteParts, 'previews' | 'forwarded'> {
  readonly operations: Operations;
  readonly creations: Creations;
  readonly extensions: Extensions;
  readonly hosts: Hosts;
  /** Creations that name no time to live get this one, in seconds. */
  readonly defaultTimeout: number;
  /** The create hook provides these members of a creation. */
  readonly createOptions: readonly string[];
  /** True if a hook pauses machines. */
  readonly canPause: boolean;
  /** The path of the file with the templates, or null. */
  readonly templateFile: string | null;
  readonly targets: TargetReader;
  readonly drain: Drain;
  readonly keys: Keys;
  /** Limits the requests per second of each client. */
  readonly rate: Rate;
  readonly inFlight: InFlight;
  /** Registrations without `onExpiry` get this value. */
  readonly onExpiry: Outcome;
  readonly metrics: SandboxMetrics;
  /** It is null without a list hook. */
  readonly comparison: Pick<MachineComparison, 'differences'> | null;
  readonly logger: Logger;
  /** Limits the lines about calls without a key. */
  readonly refusals: RefusalLines;
}

/** Published clients know platform operations at these paths, of which this gateway has only some. */
const PLATFORM_PATHS =
  /^\/(v\d+\/)?(sandboxes|templates|snapshots|secrets|volumes|volumecontent|teams|nodes|hosts|events|api-keys|access-tokens|gateway)(\/|$)/;

/** A path parameter may be as long as this, in characters, so that long ids are answered with 404. */
const MAX_PARAM_LENGTH = 16 * 1024;

declare module 'fastify' {
  interface FastifyRequest {
    /** The owner of the key. It is null only for operations that need no key. */
    caller: Caller | null;
  }
}

/** Returns the platform operations as a Fastify application, which does not listen itself. */
export function buildPlatform(parts: PlatformParts): FastifyInstance {
  const { logger, operations, keys, onExpiry, metrics } = parts;
  const views = new Views(parts);
  const level = logger.isLevelEnabled('warn') ? 'warn' : logger.level;
  const loggerInstance: FastifyBaseLogger = logger.child({}, { level });
  const app = Fastify({
    loggerInstance,
    // Ids may be longer than the 100 characters that Fastify allows by default.
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    frameworkErrors: (error, _request, reply) => void sendError(reply, error),
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, allowUnionTypes: true } },
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) =>
    done(null, parse(String(body))),
  );
  logOperations(app, parts);
  app.addHook('onRequest', async (request, reply) => {
    reply.headers(OWN_HEADERS);
    passOnIds(request, { setHeader: (name, value) => reply.header(name, value) });
  });
  shapeErrors(app, parts);
  app.addHook('onSend', async (_request, reply) => {
    // A response without content has no content type (RFC 9110, section 8.3).
    if (reply.statusCode === 204) reply.removeHeader('content-type');
  });
  app.register((scope, _options, done) => {
    requireKey(scope, keys);
    limitClients(scope, parts);
    sandboxRoutes(scope, operations, views);
    timeRoutes(scope, operations, views, parts.pauseKeeps);
    pauseRoutes(scope, operations, views, parts.pauseKeeps);
    previewRoutes(scope, parts);
    templateRoutes(scope, parts.templateFile);
    eventRoutes(scope, parts);
    const creations = new CreateRoutes({ ...parts, views });
    creations.add(scope);
    registrationRoutes(scope, { operations, views, onExpiry, creations, authorize: assertPlatform });
    scope.register((inner, _inherited, ready) => {
      inner.addHook('onRequest', async (request) => assertPlatform(request));
      metricsRoute(inner, metrics);
      differencesRoute(inner, parts.comparison);
      hostRoutes(inner, parts.hosts);
      ready();
    });
    done();
  });
  healthRoute(app, operations, parts.drain);
  missingRoutes(app);
  return app;
}

/** Refuses requests to `app` that have no valid key, and sets `request.caller` for the others. */
function requireKey(app: FastifyInstance, keys: Keys): void {
  app.decorateRequest('caller', null);
  app.addHook('onRequest', async (request) => {
    request.caller = keys.callerOf(request.headers);
    if (request.caller) return;
    throw new EnvdError('unauthenticated', 'unauthorized: header X-API-Key is missing or wrong');
  });
}

function limitClients(app: FastifyInstance, { rate, inFlight }: PlatformParts): void {
  app.addHook('onRequest', async ({ caller }, reply) => {
    if (caller?.kind !== 'client') return;
    const refusal = rate.take(caller.name) ?? inFlight.take(caller.name, reply.raw);
    if (!refusal) return;
    reply.header('retry-after', refusal.retryAfter);
    throw new HttpError(refusal.code, refusal.message);
  });
}

function assertPlatform({ caller }: FastifyRequest): void {
  if (caller?.kind === 'platform') return;
  throw new EnvdError('permission_denied', 'forbidden: this operation needs a platform key');
}

/** Parses a body as JSON, whatever its content type says. Returns null for an empty body. Throws `invalid_argument`. */
function parse(body: string): unknown {
  if (body.trim() === '') return null;
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new EnvdError('invalid_argument', `the body is not JSON: ${messageOf(error)}`);
  }
}

function logOperations(app: FastifyInstance, { logger, refusals }: PlatformParts): void {
  app.addHook('onResponse', async (request, reply) => {
    const { method, routeOptions, params, caller } = request;
    refusals.renew();
    if (!caller && !refusals.take()) return;
    const operation = `${method} ${routeOptions.url ?? 'unknown'}`;
    const sandboxID = (params as { readonly id?: string } | null)?.id;
    logger.info(
      {
        operation,
        sandboxID,
        status: reply.statusCode,
        ms: Math.round(reply.elapsedTime),
        ...idsOf(request),
      },
      'operation',
    );
  });
}

function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const code = httpStatusOf(error);
  const retryAfter = error instanceof QuotaReached ? error.retryAfter : retryAfterOf(code);
  if (retryAfter !== undefined && !reply.hasHeader('retry-after')) reply.header('retry-after', retryAfter);
  return reply
    .code(code)
    .headers(OWN_HEADERS)
    .send(errorBody(code, messageOf(error)));
}

/** Makes the application send every error as `{"code", "message"}`. */
function shapeErrors(app: FastifyInstance, { targets }: PlatformParts): void {
  app.setErrorHandler((error, request, reply) => {
    const code = httpStatusOf(error);
    if (code >= 500 && code !== 501) request.log.error({ err: error }, 'an operation of the platform failed');
    return sendError(reply, error);
  });
  // Before the body is read, which may be no JSON.
  app.addHook('onRequest', async ({ is404, method, url }) => {
    if (!is404) return;
    const path = url.split('?', 1)[0] ?? '';
    // A request with any other path is probably for a sandbox, but it names none.
    throw PLATFORM_PATHS.test(path) ? missingOperation(method, path) : targets.missing();
  });
}

function missingOperation(method: string, path: string): EnvdError {
  const message = `this gateway has no operation ${method} ${path}: the platform must provide it`;
  return new EnvdError('unimplemented', message);
}

/** Adds operations that this gateway does not have, but whose paths another operation would match. */
function missingRoutes(app: FastifyInstance): void {
  app.get('/sandboxes/metrics', async () => {
    throw missingOperation('GET', '/sandboxes/metrics');
  });
}
