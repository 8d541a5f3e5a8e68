import type { FastifyInstance } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { Health } from '../../services/guest/health.ts';
import type { MetricsReader } from '../../services/guest/metrics.ts';
import type { Forwards } from '../../services/ports/forwards.ts';
import { hasAccess, UNAUTHORIZED } from '../admission/auth.ts';
import { HEALTH_QUERY } from './queries.ts';

/** Registers `/health`. It needs no token, unless the query parameter `verbose` is present. */
export function healthRoutes(app: FastifyInstance, health: Health, guest: Guest): void {
  app.get('/health', (request, reply) => {
    if (!HEALTH_QUERY.read(request.query, '').verbose) return reply.code(204).send();
    if (!hasAccess(request.headers, guest)) throw new EnvdError('unauthenticated', UNAUTHORIZED);
    return health.read();
  });
}

/** Registers `/envs`: the environment variables of every process. */
export function envsRoutes(app: FastifyInstance, guest: Guest): void {
  app.get('/envs', () => guest.environment);
}

/** Registers `/ports`: the localhost listeners that are reachable at the guest's address. */
export function portsRoutes(app: FastifyInstance, forwards: Forwards): void {
  app.get('/ports', () => ({ address: forwards.address, ports: forwards.list() }));
}

/** Registers `/metrics`: resources of the guest. */
export function metricsRoutes(app: FastifyInstance, metrics: MetricsReader): void {
  app.get('/metrics', () => metrics.read());
}
