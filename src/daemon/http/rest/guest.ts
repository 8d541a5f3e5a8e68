import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import { EnvdError } from '../../../base/errors.ts';
import { loadedOnce } from '../../../base/loaded-once.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { Health } from '../../services/guest/health.ts';
import type { MetricsReader } from '../../services/guest/metrics.ts';
import type { Forwards } from '../../services/ports/forwards.ts';
import { hasAccess, UNAUTHORIZED } from '../admission/auth.ts';
import { HEALTH_QUERY } from '../json/queries.ts';
import type { TextFormat } from '../../extensions/prometheus/metrics-page.ts';
import type { DaemonTelemetry } from '../../extensions/prometheus/prometheus.ts';

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

const JSON_TYPE = 'application/json';

const TEXT_FORMATS: Readonly<Record<string, TextFormat>> = {
  'text/plain; version=0.0.4': 'prometheus',
  'application/openmetrics-text; version=1.0.0': 'openmetrics',
};

/** Registers `/metrics`: resources of the guest as JSON, or metrics of the daemon in one of Prometheus' formats. */
export function metricsRoutes(
  app: FastifyInstance,
  metrics: MetricsReader,
  telemetry: DaemonTelemetry,
): void {
  // The first request loads the library, because most daemons are never scraped.
  const exporter = loadedOnce(async () => new (await import('../../extensions/prometheus/prometheus.ts')).Exporter(telemetry));
  app.get('/metrics', async (request, reply) => {
    reply.header('vary', 'Accept');
    const format = textFormatOf(request);
    if (format === null) return metrics.read();
    const { contentType, text } = await (await exporter()).render(format);
    return reply.type(contentType).send(text);
  });
}

/** Returns the text format that the client prefers; null: JSON, also when the client accepts none of the available types. */
function textFormatOf({ headers }: FastifyRequest): TextFormat | null {
  const negotiator = new Negotiator({ headers: { accept: headers.accept } });
  const best = negotiator.mediaTypes([JSON_TYPE, ...Object.keys(TEXT_FORMATS)])[0] ?? JSON_TYPE;
  return TEXT_FORMATS[best] ?? null;
}
