import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import type { Init, InitReport } from '../../services/init/init.ts';
import { INIT_REQUEST } from '../../services/init/init-request.ts';
import { ignoreContentType } from '../admission/requests.ts';
import { JsonBodies } from '../json/json-bodies.ts';

/** Strict, because the token is in the body: callers are not authorised before it has been read. */
const LIMITS = {
  bytes: 64 * 1024,
  // Mozilla's complete bundle has 220 KiB.
  large: { name: 'caBundle', bytes: 512 * 1024 },
  containers: 512,
};

/**
 * Registers `/init`, which the platform calls after each boot and resume. `services/init/steps.ts` authorises it.
 * @param version of the interface, told in a header of each response
 */
export function initRoutes(app: FastifyInstance, init: Init, version: string, logger: Logger): void {
  const bodies = new JsonBodies(LIMITS);
  const unknown = new UnknownMembers(logger);
  app.post('/init', { onRequest: ignoreContentType }, async ({ call }, reply) => {
    reply.header('x-envd-version', version);
    const report: InitReport = { freezeAudit: null };
    try {
      const body = (await bodies.read(call)) ?? {};
      await init.apply(INIT_REQUEST.read(body, ''), report, call);
      unknown.note(Object.keys(body));
    } finally {
      if (report.freezeAudit) reply.header('x-envd-freeze-audit', JSON.stringify(report.freezeAudit));
      if (report.handover) reply.header('x-envd-handover', JSON.stringify(report.handover));
    }
    if (report.delivered) reply.raw.once('finish', report.delivered);
    if (report.handover)
      reply.raw.once('finish', () => {
        init.handover = null;
      });
    return reply.code(204).send();
  });
}

const MEMBERS = Object.keys(INIT_REQUEST.schema.properties ?? {});

/** Logs each unknown member of a body once; a newer platform may send them. */
class UnknownMembers {
  readonly #named = new Set<string>();
  readonly #logger: Logger;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  note(names: readonly string[]): void {
    for (const name of names) {
      if (MEMBERS.includes(name) || this.#named.has(name) || this.#named.size >= MOST_UNKNOWN) continue;
      this.#named.add(name);
      this.#logger.warn({ member: name.slice(0, MOST_UNKNOWN) }, 'unknown member of /init is ignored');
    }
  }
}

/** Names that are kept or logged, and characters of each line. */
const MOST_UNKNOWN = 64;
