import { finished } from 'node:stream';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { INTERFACE_VERSION } from '../../../base/program/version.ts';
import type { Init } from '../../services/init/init.ts';
import { INIT_REQUEST } from '../../services/init/init-request.ts';
import { ignoreContentType } from '../admission/requests.ts';
import { INIT_LIMIT_BYTES } from '../bodies/body-limits.ts';
import { JsonBodies } from '../bodies/json-body.ts';

/** Registers `/init`, which the platform calls after each boot and resume. `services/init/steps.ts` authorizes it. */
export function initRoutes(app: FastifyInstance, init: Init, logger: Logger): void {
  const bodies = new JsonBodies(INIT_LIMIT_BYTES.body, {
    name: 'caBundle',
    bytes: INIT_LIMIT_BYTES.caBundle,
  });
  const noteUnknown = unknownMembers(logger);
  app.post('/init', { onRequest: ignoreContentType }, async ({ call }, reply) => {
    reply.header('x-envd-version', INTERFACE_VERSION);
    const body = (await bodies.read(call)) ?? {};
    const report = await init.apply(INIT_REQUEST.read(body, ''), call);
    const { failure, freezeAudit, handover } = report;
    if (freezeAudit) reply.header('x-envd-freeze-audit', JSON.stringify(freezeAudit));
    if (handover) reply.header('x-envd-handover', JSON.stringify(handover));
    if (freezeAudit || handover)
      finished(reply.raw, (error) => {
        if (error || reply.statusCode !== 204) init.lost(report);
      });
    if (failure) throw failure;
    call.isTrusted = true;
    noteUnknown(Object.keys(body));
    return reply.code(204).send();
  });
}

const MEMBERS = Object.keys(INIT_REQUEST.schema.properties ?? {});

/** This many unknown names are logged, and this many characters of each. */
const MOST_UNKNOWN = 64;

/** Returns a function that logs each unknown member of bodies once. A newer platform may send such members. */
function unknownMembers(logger: Logger): (names: readonly string[]) => void {
  const named = new Set<string>();
  return (names) => {
    for (const name of names) {
      if (MEMBERS.includes(name) || named.has(name) || named.size >= MOST_UNKNOWN) continue;
      named.add(name);
      logger.warn({ member: name.slice(0, MOST_UNKNOWN) }, 'ignored an unknown member of a body for /init');
    }
  };
}
