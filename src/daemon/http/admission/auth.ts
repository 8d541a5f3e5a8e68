import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import { isInHeader } from '../../../base/program/secrets.ts';
import type { Guest } from '../../services/guest/guest.ts';
import { endUnlessComplete } from './requests.ts';

export const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

/** A refused client may send so much more: it can then read the response before the connection is closed. */
export const LINGER = { milliseconds: 5000, bytes: 16 * 1024 * 1024 };

/** These operations need no token here. `/init` and file transfers check tokens and signatures themselves. */
const EXEMPT = new Set([
  'GET /health',
  'HEAD /health',
  'POST /init',
  'GET /files',
  'HEAD /files',
  'POST /files',
]);

/** Returns the step that authorizes requests. It fails with `unauthenticated` if the access token does not match. */
export function requireAccessToken(guest: Guest): onRequestHookHandler {
  return (request, reply, done) => {
    request.call.isTrusted = hasAccess(request.headers, guest);
    if (request.call.isTrusted || isExempt(request)) return done();
    endUnlessComplete(request.raw, reply.raw, LINGER);
    done(new EnvdError('unauthenticated', UNAUTHORIZED));
  };
}

/** Returns whether a request has the access token, or needs none. */
export function hasAccess({ 'x-access-token': shown }: IncomingHttpHeaders, guest: Guest): boolean {
  if (guest.accessToken === null) return guest.isOpen;
  return typeof shown === 'string' && isInHeader(guest.accessToken, shown);
}

function isExempt({ method, routeOptions }: FastifyRequest): boolean {
  return EXEMPT.has(`${method} ${routeOptions.url ?? ''}`);
}
