import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import type { MetricsReader } from '../../services/guest/metrics.ts';
import type { Exporter, Telemetry, TextFormat } from '../prometheus.ts';

const JSON_TYPE = 'application/json';

const TEXT_FORMATS: Readonly<Record<string, TextFormat>> = {
  'text/plain; version=0.0.4': 'prometheus',
  'application/openmetrics-text; version=1.0.0': 'openmetrics',
};

/** The guest's resources as JSON; for a client that prefers one of Prometheus' formats, the daemon's own figures. */
export function metricsRoutes(app: FastifyInstance, metrics: MetricsReader, telemetry: Telemetry): void {
  // Most daemons are never asked: the library is loaded with the first question.
  let exporter: Promise<Exporter> | null = null;
  const load = async () => new (await import('../prometheus.ts')).Exporter(telemetry);
  app.get('/metrics', async (request, reply) => {
    reply.header('vary', 'Accept');
    const format = textFormatOf(request);
    if (format === null) return metrics.read();
    exporter ??= load();
    const { contentType, text } = await (await exporter).render(format);
    return reply.type(contentType).send(text);
  });
}

/** Null: JSON, which is also for a client that names nothing we have. */
function textFormatOf({ headers }: FastifyRequest): TextFormat | null {
  const negotiator = new Negotiator({ headers: { accept: headers.accept } });
  const best = negotiator.mediaTypes([JSON_TYPE, ...Object.keys(TEXT_FORMATS)])[0] ?? JSON_TYPE;
  return TEXT_FORMATS[best] ?? null;
}
