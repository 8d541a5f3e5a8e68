import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import { passOnIds } from '../../../base/http/call-ids.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { CallLog } from './call-log.ts';
import type { CallScope } from './call-scope.ts';

declare module 'fastify' {
  interface FastifyRequest {
    call: CallScope;
  }
}

/** Creates the scope of the operation. Responses repeat `X-Request-Id` and `traceparent`. */
export function beginCall(calls: CallLog): onRequestHookHandler {
  return (request, reply, done) => {
    const { method, routeOptions, raw } = request;
    passOnIds(raw, reply.raw);
    request.call = calls.begin(`${method} ${routeOptions.url ?? 'unknown'}`, raw, reply.raw);
    done();
  };
}

/** A hook `onRequest` of routes whose body may have any content type: Fastify refuses malformed ones with 415. */
export function ignoreContentType(request: FastifyRequest, _reply: FastifyReply, done: () => void): void {
  delete request.raw.headers['content-type'];
  done();
}

/** The same for routes that discard any body. An unread one would hide that the client disconnects. */
export function ignoreBody(request: FastifyRequest, reply: FastifyReply, done: () => void): void {
  request.raw.resume();
  ignoreContentType(request, reply, done);
}

/**
 * Disables Fastify's parsing of bodies: handlers read them, with the limits that fit. Node discards the unread rest after
 * the response.
 */
export function disableBodyParsing(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
}

/** Limits of a lingering close: what a refused client may still send, so that it can read the response. */
export interface Linger {
  readonly milliseconds: number;
  readonly bytes: number;
}

const CHECK_INTERVAL_MS = 100;

/**
 * Lingering close: after the response, discards the rest of the request, and destroys the connection at the limits of
 * `linger`.
 */
export function endUnlessComplete(request: IncomingMessage, response: ServerResponse, linger: Linger): void {
  response.once('finish', () => {
    if (request.complete) return;
    const { socket } = request;
    const latest = monotonicMs() + linger.milliseconds;
    const most = socket.bytesRead + linger.bytes;
    const timer = setInterval(() => {
      if (request.complete) clearInterval(timer);
      else if (monotonicMs() > latest || socket.bytesRead > most) request.destroy();
    }, CHECK_INTERVAL_MS);
    request.once('close', () => clearInterval(timer));
  });
}
