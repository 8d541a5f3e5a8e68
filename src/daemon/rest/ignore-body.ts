import type { FastifyInstance } from 'fastify';

/** Lets the routes of `scope` take a request with any body, or with none under any content type, and drop it. */
export function ignoreBody(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, parsed) => {
    payload.resume();
    parsed(null);
  });
}

/**
 * Nothing is read of a body before its handler asks for it, whatever its type: each knows what it may be, and who
 * sends it. What is left of it when the answer is out, Node reads and drops.
 */
export function leaveBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
}
