import type { FastifyInstance } from 'fastify';
import type { Init, InitReport } from '../../services/init/init.ts';
import { parseInitRequest } from '../../services/init/init-request.ts';
import { JsonBodies } from '../json-bodies.ts';

/** The caller shows who he is in the body itself. */
const LIMITS = {
  bytes: 64 * 1024,
  // All of Mozilla's certificates are 220 KiB.
  large: { name: 'caBundle', bytes: 512 * 1024 },
  containers: 512,
};

/** The platform's call after each boot and resume. It carries its own authorisation, see `services/init/steps.ts`. */
export function initRoutes(app: FastifyInstance, init: Init, version: string): void {
  const bodies = new JsonBodies(LIMITS);
  app.post('/init', async (request, reply) => {
    reply.header('x-envd-version', version);
    const report: InitReport = { freezeAudit: null };
    try {
      await init.apply(parseInitRequest((await bodies.read(request.raw, reply.raw)) ?? {}), report);
    } finally {
      if (report.freezeAudit) reply.header('x-envd-freeze-audit', JSON.stringify(report.freezeAudit));
    }
    return reply.code(204).send();
  });
}
