import type { FastifyInstance } from 'fastify';
import type { FilesystemFreezer } from '../../services/freeze/filesystem-freezer.ts';
import { ignoreBody } from '../ignore-body.ts';

/** Stopping all writing to the guest's root file system before a snapshot, and undoing that. */
export function fsfreezeRoutes(app: FastifyInstance, freezer: FilesystemFreezer): void {
  app.register((scope, _options, done) => {
    ignoreBody(scope);
    scope.post('/fsfreeze', async (_request, reply) => {
      await freezer.freeze();
      return reply.code(204).send();
    });
    scope.post('/fsthaw', async (_request, reply) => {
      await freezer.thaw();
      return reply.code(204).send();
    });
    done();
  });
}
