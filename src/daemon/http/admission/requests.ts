import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { passOnIds } from '../../../base/http/call-ids.ts';
import type { CallLog } from './call-log.ts';
import type { CallScope } from './call-scope.ts';

declare module 'fastify' {
  interface FastifyRequest {
    call: CallScope;
  }
}

/** Returns the step that creates the scope of the operation, and repeats `X-Request-Id` and `traceparent` in the response. */
export function beginCall(calls: CallLog): onRequestHookHandler {
  return (request, reply, done) => {
    const { method, routeOptions, raw } = request;
    passOnIds(raw, reply.raw);
    request.call = calls.begin(`${method} ${routeOptions.url ?? 'unknown'}`, raw, reply.raw);
    done();
  };
}

/** A hook `onRequest` of routes whose body may have any content type. Fastify would refuse malformed types with 415. */
export function ignoreContentType(request: FastifyRequest, _reply: FastifyReply, done: () => void): void {
  delete request.raw.headers['content-type'];
  done();
}

/** A hook `onRequest` of routes that discard any body. An unread body would hide that the client disconnects. */
export function ignoreBody(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  request.raw.resume();
  ignoreContentType(request, reply, done);
}

/** Turns off Fastify's parsing of bodies: handlers read them, within their own limits. Node discards what is left unread. */
export function disableBodyParsing(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
}
