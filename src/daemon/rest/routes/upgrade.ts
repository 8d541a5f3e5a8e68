import type { FastifyInstance } from 'fastify';
import type { Upgrade } from '../../services/handover/upgrade.ts';
import { ignoreBody } from '../requests.ts';

/** Registers `/upgrade`: the daemon replaces itself by the program now at its path. */
export function upgradeRoutes(app: FastifyInstance, upgrade: Upgrade): void {
  app.register((scope, _options, done) => {
    ignoreBody(scope);
    scope.post('/upgrade', async (_request, reply) => {
      const replace = await upgrade.prepare();
      // When the response has been sent, or its client has gone.
      if (reply.raw.destroyed) replace();
      else reply.raw.once('close', replace);
      return reply.code(202).send();
    });
    done();
  });
}
