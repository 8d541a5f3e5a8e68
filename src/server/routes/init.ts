import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import type { Init, InitReport } from '../../services/lifecycle/init.ts';
import { parseInitRequest } from '../../services/lifecycle/init-request.ts';

/** The platform's call after each boot and resume. It carries its own authorisation, see `steps/auth.ts`. */
export function initRoutes(app: FastifyInstance, init: Init, version: string): void {
  app.register((scope, _options, done) => {
    // The body is JSON whatever its type says, and may be empty.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', { parseAs: 'string' }, (_request, text, parsed) => parsed(null, text));
    scope.post<{ Body?: string }>('/init', async (request, reply) => {
      reply.header('x-envd-version', version);
      const report: InitReport = { freezeAudit: null };
      try {
        await init.apply(parseInitRequest(parseJson(request.body ?? '')), report);
      } finally {
        if (report.freezeAudit) reply.header('x-envd-freeze-audit', JSON.stringify(report.freezeAudit));
      }
      return reply.code(204).send();
    });
    done();
  });
}

function parseJson(text: string): unknown {
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text);
  } catch (error) {
    // V8's own message quotes the text, and with it a token.
    throw new EnvdError('invalid_argument', 'request body is not valid JSON', { cause: error });
  }
}
