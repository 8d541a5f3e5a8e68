import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import { EnvdError } from '../../../base/errors.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { Health } from '../../services/guest/health.ts';
import type { MetricsReader } from '../../services/guest/metrics.ts';
import type { Init, InitReport } from '../../services/init/init.ts';
import { INIT_REQUEST } from '../../services/init/init-request.ts';
import type { Forwards } from '../../services/ports/forwards.ts';
import { hasAccess, UNAUTHORIZED } from '../auth.ts';
import { JsonBodies } from '../json-bodies.ts';
import type { TextFormat } from '../metrics-page.ts';
import type { Exporter, Telemetry } from '../prometheus.ts';
import { HEALTH_QUERY } from '../queries.ts';
import { ignoreContentType } from '../requests.ts';

/** Registers `/health`, which needs no token; with the query parameter `verbose`, whatever its value, it does. */
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
  const unknown = new UnknownMembers();
  app.post('/init', { onRequest: ignoreContentType }, async (request, reply) => {
    reply.header('x-envd-version', version);
    const report: InitReport = { freezeAudit: null };
    try {
      const body = (await bodies.read(request.raw, reply.raw)) ?? {};
      const wanted = INIT_REQUEST.read(body, '');
      await init.apply(wanted, report, request.call.signal);
      unknown.note(body, request.log);
      reply.raw.once('finish', () => report.delivered?.());
    } finally {
      if (report.freezeAudit) reply.header('x-envd-freeze-audit', JSON.stringify(report.freezeAudit));
    }
    return reply.code(204).send();
  });
}

const INIT_MEMBERS = Object.keys(INIT_REQUEST.schema.properties ?? {});

/** Logs each unknown member of a body once; a newer platform may send them. */
class UnknownMembers {
  readonly #named = new Set<string>();

  note(body: object, log: FastifyRequest['log']): void {
    for (const name of Object.keys(body)) {
      if (INIT_MEMBERS.includes(name) || this.#named.has(name) || this.#named.size >= MOST_UNKNOWN) continue;
      this.#named.add(name);
      log.warn({ member: name.slice(0, MOST_UNKNOWN) }, 'unknown member of /init is ignored');
    }
  }
}

/** Names that are logged, and characters of each. */
const MOST_UNKNOWN = 64;

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
