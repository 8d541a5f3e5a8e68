import type { FastifyInstance } from 'fastify';
import { monotonicMs } from '../../../base/monotonic.ts';
import { ignoreContentType } from '../../http/admission/requests.ts';
import { JsonBodies } from '../../http/bodies/json-body.ts';
import type { Extension } from '../../http/extension.ts';
import { selectorIn } from '../../services/process/lifecycle/process-index.ts';
import type { ProcessTable } from '../../services/process/table.ts';
import { Stops } from './stop-process.ts';
import { STOP_REQUEST } from './stop-request.ts';

const PATH = '/processes/:process/stop';
/** The most bytes of a body. */
const BODY_BYTES = 4096;

/**
 * Adds `POST /processes/{pid or tag}/stop`, which ends a process and everything below it, and answers when nothing of it is
 * left. It continues if its client disconnects.
 */
export function stopExtension(processes: ProcessTable): Extension {
  return { addRoutes: (app) => stopRoutes(app, processes) };
}

function stopRoutes(app: FastifyInstance, processes: ProcessTable): void {
  const bodies = new JsonBodies(BODY_BYTES);
  const stops = new Stops();
  app.post<{ Params: { process: string } }>(PATH, { onRequest: ignoreContentType }, async (request) => {
    const { call, params } = request;
    const { graceMs } = STOP_REQUEST.read((await bodies.read(call)) ?? {}, '');
    const process = processes.find(selectorIn(params.process));
    const { pid, tag } = process;
    call.subject = { pid };
    const started = monotonicMs();
    const { end, killed } = await stops.stop(process, graceMs);
    const { type: _, reason, ...how } = end;
    const durationMs = Math.round(monotonicMs() - started);
    return { pid, tag, killed, reason: reason.replaceAll(' ', '_'), ...how, durationMs };
  });
}
