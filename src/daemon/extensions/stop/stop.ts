import type { FastifyInstance } from 'fastify';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import { ignoreContentType } from '../../http/admission/requests.ts';
import type { Extension } from '../../http/extension.ts';
import { JsonBodies } from '../../http/json/json-bodies.ts';
import { selectorIn } from '../../services/process/lifecycle/known.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { stopProcess } from './stop-process.ts';
import { STOP_REQUEST } from './stop-request.ts';

const PATH = '/processes/:process/stop';
const BODY_LIMITS = { bytes: 4096, large: null, containers: 16 };
/** So many stops may be under way, because each waits for its process. */
const MOST_STOPS = 64;

/**
 * Adds `POST /processes/{pid or tag}/stop`, which ends a process and everything below it, and answers when nothing of it is
 * left. It continues if its client disconnects.
 */
export function stopExtension(processes: ProcessTable): Extension {
  return { addRoutes: (app) => stopRoutes(app, processes) };
}

function stopRoutes(app: FastifyInstance, processes: ProcessTable): void {
  const bodies = new JsonBodies(BODY_LIMITS);
  const places = new Allowance(MOST_STOPS);
  app.post<{ Params: { process: string } }>(PATH, { onRequest: ignoreContentType }, async (request) => {
    const { call, params } = request;
    const { graceMs } = STOP_REQUEST.read((await bodies.read(call)) ?? {}, '');
    const process = processes.find(selectorIn(params.process));
    const { pid, tag } = process;
    call.subject = { pid };
    if (!places.take(1))
      throw new EnvdError(
        'resource_exhausted',
        `too many stops: ${MOST_STOPS} are under way, try again later`,
      );
    const started = monotonicMs();
    try {
      const { end, killed } = await stopProcess(process, graceMs);
      const { type: _, reason, ...how } = end;
      const durationMs = Math.round(monotonicMs() - started);
      return { pid, tag, killed, reason: reason.replaceAll(' ', '_'), ...how, durationMs };
    } finally {
      places.release(1);
    }
  });
}
