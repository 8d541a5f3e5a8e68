import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../base/errors.ts';
import { equalSecrets } from '../../base/secrets.ts';

/** Refuses every operation of `app` to callers who do not show the key. */
export function requireKey(app: FastifyInstance, apiKey: string): void {
  app.addHook('onRequest', async ({ headers }) => {
    const shown = headers['x-api-key'];
    if (typeof shown === 'string' && equalSecrets(shown, apiKey)) return;
    throw new EnvdError('unauthenticated', 'unauthorized: header X-API-Key is missing or wrong');
  });
}
