import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import type { Guest } from '../../services/guest/guest.ts';
import type { MetricsReader } from '../../services/guest/metrics.ts';
import type { Init, InitReport } from '../../services/init/init.ts';
import { parseInitRequest } from '../../services/init/init-request.ts';
import { JsonBodies } from '../json-bodies.ts';
import type { Exporter, Telemetry, TextFormat } from '../prometheus.ts';
import { ignoreContentType } from '../requests.ts';

/** Registers `/health`; it needs no token. */
export function healthRoutes(app: FastifyInstance): void {
  app.get('/health', (_request, reply) => reply.code(204).send());
}

/** Registers `/envs`: the environment variables of every process. */
export function envsRoutes(app: FastifyInstance, guest: Guest): void {
  app.get('/envs', () => guest.environment);
}

/** Strict, because the token is in the body: callers are not authorised before it has been read. */
const INIT_LIMITS = {
  bytes: 64 * 1024,
  // Mozilla's complete bundle has 220 KiB.
  large: { name: 'caBundle', bytes: 512 * 1024 },
  containers: 512,
};

/** Registers `/init`, called by the platform after each boot and resume. `services/init/steps.ts` authorises it. */
export function initRoutes(app: FastifyInstance, init: Init, version: string): void {
  const bodies = new JsonBodies(INIT_LIMITS);
  app.post('/init', { onRequest: ignoreContentType }, async (request, reply) => {
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

const JSON_TYPE = 'application/json';

const TEXT_FORMATS: Readonly<Record<string, TextFormat>> = {
  'text/plain; version=0.0.4': 'prometheus',
  'application/openmetrics-text; version=1.0.0': 'openmetrics',
};

/** Registers `/metrics`: resources of the guest as JSON, or metrics of the daemon in one of Prometheus' formats. */
export function metricsRoutes(app: FastifyInstance, metrics: MetricsReader, telemetry: Telemetry): void {
  // Most daemons are never scraped: the library is loaded at the first request.
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

/** The preferred text format; null: JSON, also when the client accepts none of the available types. */
function textFormatOf({ headers }: FastifyRequest): TextFormat | null {
  const negotiator = new Negotiator({ headers: { accept: headers.accept } });
  const best = negotiator.mediaTypes([JSON_TYPE, ...Object.keys(TEXT_FORMATS)])[0] ?? JSON_TYPE;
  return TEXT_FORMATS[best] ?? null;
}
