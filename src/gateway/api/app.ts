import Fastify, { type FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { EnvdError, messageOf } from '../../base/errors.ts';
import type { Outcome } from '../leases/sandbox.ts';
import { OWN_HEADERS, statusOf } from '../routes/answers.ts';
import type { TargetReader } from '../routes/target.ts';
import { requireKey } from './key.ts';
import { sandboxRoutes, timeRoutes } from './routes.ts';
import { type SelfParts, selfRoutes } from './self.ts';

export interface PlatformParts extends SelfParts {
  readonly targets: TargetReader;
  /** For sandboxes that are registered without a word about it. */
  readonly onExpiry: Outcome;
  readonly logger: Logger;
}

/** The platform operations, without a server of their own. */
export function buildPlatform(parts: PlatformParts): FastifyInstance {
  const { logger, operations, apiKey, onExpiry } = parts;
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
    done();
  });
  selfRoutes(app, parts);
  return app;
}

/** JSON whatever it is called; nothing at all is null. */
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

/** Every error in the one shape, `{"code", "message"}`. */
function shapeErrors(app: FastifyInstance, { targets }: PlatformParts): void {
  app.setErrorHandler((error, request, reply) => {
    const code = statusOf(error);
    if (code >= 500) request.log.error({ err: error }, 'operation failed');
    return reply
      .code(code)
      .headers(OWN_HEADERS)
      .send({ code, message: messageOf(error) });
  });
  app.setNotFoundHandler(({ method, url }, reply) => {
    const path = url.split('?', 1)[0] ?? '';
    const platform = /^\/(v2\/)?sandboxes(\/|$)|^\/gateway\//.test(path);
    // Anything else was meant for a sandbox.
    const code = platform ? 404 : 400;
    const message = platform ? `no such operation: ${method} ${path}` : targets.missing().message;
    return reply.code(code).headers(OWN_HEADERS).send({ code, message });
  });
}
