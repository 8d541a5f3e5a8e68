import type { FastifyInstance } from 'fastify';
import type { Guest } from '../../services/guest/guest.ts';

/** The variables that every process gets. */
export function envsRoutes(app: FastifyInstance, guest: Guest): void {
  app.get('/envs', () => guest.environment);
}
