import type { FastifyInstance } from 'fastify';
import type { MetricsReader } from '../../services/lifecycle/metrics.ts';

export function metricsRoutes(app: FastifyInstance, metrics: MetricsReader): void {
  app.get('/metrics', () => metrics.read());
}
