import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { Upgrade } from '../../services/handover/upgrade.ts';
import { ignoreContentType } from '../admission/requests.ts';

/**
 * Registers `/upgrade`, with which the daemon replaces itself by the program that is now at its path. A body is refused, because
 * platforms that send a program in it must not believe that it was installed.
 */
export function upgradeRoutes(app: FastifyInstance, upgrade: Upgrade): void {
  app.post('/upgrade', { onRequest: ignoreContentType }, async ({ raw }, reply) => {
    if (hasBody(raw)) {
      const text =
        'wanted no body, as the program is read from its path: install it there, then call /upgrade';
      throw new EnvdError('invalid_argument', text);
    }
    const replace = await upgrade.prepare();
    // The daemon replaces itself when the response was sent, or its client has disconnected.
    if (reply.raw.destroyed) replace();
    else reply.raw.once('close', replace);
    return reply.code(202).send();
  });
}

/** Returns whether a request has a body: it has none without these headers. Source: RFC 9112, section 6. */
function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}
