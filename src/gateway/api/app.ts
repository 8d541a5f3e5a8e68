import Fastify, { type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { EnvdError, errorBody, messageOf, statusOf } from '../../base/errors.ts';
import { equalSecrets } from '../../base/secrets.ts';
import type { Outcome } from '../leases/sandbox.ts';
import { OWN_HEADERS } from '../routes/answers.ts';
import type { TargetReader } from '../routes/target.ts';
import type { Operations } from './operations.ts';
import { healthRoute, type Metrics, metricsRoute, sandboxRoutes, timeRoutes } from './routes.ts';

export interface PlatformParts {
  readonly operations: Operations;
  readonly targets: TargetReader;
  readonly apiKey: string;
  /** For sandboxes that are registered without one. */
  readonly onExpiry: Outcome;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** The platform operations as a Fastify application that does not listen. */
export function buildPlatform(parts: PlatformParts): FastifyInstance {
  const { logger, operations, apiKey, onExpiry, metrics } = parts;
  const app = Fastify({
    loggerInstance: logger.child({}, { level: logger.isLevelEnabled('warn') ? 'warn' : logger.level }),
    exposeHeadRoutes: false,
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, allowUnionTypes: true } },
  }) as unknown as FastifyInstance;
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) =>
    done(null, parse(String(body))),
  );
  logOperations(app, logger);
  shapeErrors(app, parts);
  app.addHook('onRequest', async (_request, reply) => {
    reply.headers(OWN_HEADERS);
  });
  app.register((scope, _options, done) => {
    requireKey(scope, apiKey);
    sandboxRoutes(scope, operations, onExpiry);
    timeRoutes(scope, operations);
    metricsRoute(scope, metrics);
    done();
  });
  healthRoute(app, operations);
  return app;
}

/** Refuses requests to `app` without the key. */
function requireKey(app: FastifyInstance, apiKey: string): void {
  app.addHook('onRequest', async ({ headers }) => {
    const shown = headers['x-api-key'];
    if (typeof shown === 'string' && equalSecrets(shown, apiKey)) return;
    throw new EnvdError('unauthenticated', 'unauthorized: header X-API-Key is missing or wrong');
  });
}

/** Parses JSON of any content type; an empty body is null. */
function parse(body: string): unknown {
  if (body.trim() === '') return null;
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new EnvdError('invalid_argument', `the body is not JSON: ${messageOf(error)}`);
  }
}

function logOperations(app: FastifyInstance, logger: Logger): void {
  app.addHook('onResponse', async ({ method, routeOptions, params }, reply) => {
    const operation = `${method} ${routeOptions.url ?? 'unknown'}`;
    const sandboxID = (params as { readonly id?: string } | null)?.id;
    logger.info(
      { operation, sandboxID, status: reply.statusCode, ms: Math.round(reply.elapsedTime) },
      'operation',
    );
  });
}

/** Sends every error as `{"code", "message"}`. */
function shapeErrors(app: FastifyInstance, { targets }: PlatformParts): void {
  app.setErrorHandler((error, request, reply) => {
    const code = statusOf(error);
    if (code >= 500) request.log.error({ err: error }, 'operation failed');
    return reply
      .code(code)
      .headers(OWN_HEADERS)
      .send(errorBody(code, messageOf(error)));
  });
  app.setNotFoundHandler(({ method, url }, reply) => {
    const path = url.split('?', 1)[0] ?? '';
    const platform = /^\/(v2\/)?sandboxes(\/|$)|^\/gateway\//.test(path);
    // Other paths are those of a sandbox that was not named.
    const code = platform ? 404 : 400;
    const message = platform ? `no such operation: ${method} ${path}` : targets.missing().message;
    return reply.code(code).headers(OWN_HEADERS).send(errorBody(code, message));
  });
}
