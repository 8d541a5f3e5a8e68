import type { FastifyInstance } from 'fastify';
import type { Collapser } from '../../services/collapse/collapse.ts';
import { withClientSignal } from '../client-signal.ts';
import { ignoreBody } from '../ignore-body.ts';
import { rehearse } from '../rehearsal.ts';

/** Making the daemon's memory dense before a snapshot; ends when the caller goes away. */
export function collapseRoutes(app: FastifyInstance, collapser: Collapser): void {
  app.register((scope, _options, done) => {
    ignoreBody(scope);
    scope.post('/collapse', (_request, reply) =>
      withClientSignal(reply, (gone) => collapser.collapse(gone, (signal) => rehearse(app, signal))),
    );
    done();
  });
}
