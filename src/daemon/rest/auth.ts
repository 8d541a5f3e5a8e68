import type { FastifyInstance, FastifyRequest } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import { equalSecrets } from '../../base/secrets.ts';
import type { Guest } from '../services/guest/guest.ts';
import { endUnlessComplete } from './requests.ts';

const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

/** How long and how much a caller may go on sending that was refused, so that it gets to read why. */
export const LINGER = { milliseconds: 5000, bytes: 16 * 1024 * 1024 };

/** What is open without a token: `/init` judges its own, file transfers may carry a signature instead. */
const EXEMPT = new Set([
  'GET /health',
  'HEAD /health',
  'POST /init',
  'GET /files',
  'HEAD /files',
  'POST /files',
]);

/** The one gate for REST and RPC alike. Answers `unauthenticated`; the error takes the shape of each protocol. */
export function gate(app: FastifyInstance, guest: Guest): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (guest.accessToken === null || isExempt(request)) return done();
    const shown = request.headers['x-access-token'];
    if (typeof shown === 'string' && equalSecrets(shown, guest.accessToken)) return done();
    endUnlessComplete(request.raw, reply.raw, LINGER);
    done(new EnvdError('unauthenticated', UNAUTHORIZED));
  });
}

function isExempt({ method, routeOptions }: FastifyRequest): boolean {
  return EXEMPT.has(`${method} ${routeOptions.url ?? ''}`);
}
