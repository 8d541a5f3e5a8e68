import type { FastifyInstance } from 'fastify';
import type { Collapser } from '../../services/pause/collapse.ts';
import type { FilesystemFreezer } from '../../services/pause/filesystem-freezer.ts';
import type { Freezer } from '../../services/pause/freezer.ts';
import { ignoreBody } from '../admission/requests.ts';
import { FREEZE_QUERY } from './queries.ts';

/** A freeze visits at most this many cgroups, whatever `maxCgroups` says. */
const LIMIT_OF_MAX_CGROUPS = 8192;

/** Registers `/freeze`, which stops the workload before a pause, and `/unfreeze`, which undoes that when the pause has failed. */
export function freezeRoutes(app: FastifyInstance, freezer: Freezer): void {
  app.post('/freeze', { onRequest: ignoreBody }, async (request, reply) => {
    const query = FREEZE_QUERY.read(request.query, '');
    const wanted = { ...query, maxCgroups: Math.min(query.maxCgroups, LIMIT_OF_MAX_CGROUPS) };
    const statistics = await freezer.freeze(wanted, request.call.signal);
    return wanted.maxWaitMs > 0 ? reply.send(statistics) : reply.code(204).send();
  });
  app.post('/unfreeze', { onRequest: ignoreBody }, async (_request, reply) => {
    freezer.thaw();
    return reply.code(204).send();
  });
}

/** Registers `/fsfreeze`, which blocks writes to the guest's root file system for a snapshot, and `/fsthaw`, which ends that. */
export function fsfreezeRoutes(app: FastifyInstance, freezer: FilesystemFreezer): void {
  app.post('/fsfreeze', { onRequest: ignoreBody }, async (_request, reply) => {
    await freezer.freeze();
    return reply.code(204).send();
  });
  app.post('/fsthaw', { onRequest: ignoreBody }, async (_request, reply) => {
    await freezer.thaw();
    return reply.code(204).send();
  });
}

/** Registers `/collapse`, which compacts the memory of the daemon before a snapshot. It stops when the client disconnects. */
export function collapseRoutes(app: FastifyInstance, collapser: Collapser): void {
  app.post('/collapse', { onRequest: ignoreBody }, ({ call }) => collapser.collapse(call.signal));
}
