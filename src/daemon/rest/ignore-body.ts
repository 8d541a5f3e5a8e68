import type { FastifyInstance } from 'fastify';

/** Lets the routes of `scope` take a request with any body, or with none under any content type, and drop it. */
export function ignoreBody(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, parsed) => {
    payload.resume();
    parsed(null);
  });
}
