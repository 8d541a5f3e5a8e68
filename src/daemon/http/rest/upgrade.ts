import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { Upgrade } from '../../services/handover/upgrade.ts';
import { ignoreContentType } from '../admission/requests.ts';

/**
 * Registers `/upgrade`: the daemon replaces itself by the program now at its path. A body is refused: some platforms send the program
 * in it, and must not take it for installed.
 */
export function upgradeRoutes(app: FastifyInstance, upgrade: Upgrade): void {
  app.post('/upgrade', { onRequest: ignoreContentType }, async ({ raw }, reply) => {
    if (hasBody(raw)) {
      const text =
        'wanted no body, as the program is read from its path: install it there, then call /upgrade';
      throw new EnvdError('invalid_argument', text);
    }
    const replace = await upgrade.prepare();
    // When the response has been sent, or its client has gone.
    if (reply.raw.destroyed) replace();
    else reply.raw.once('close', replace);
    return reply.code(202).send();
  });
}

/** RFC 9112, section 6: a request without these headers has none. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}
