import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import { isInHeader } from '../../../base/program/secrets.ts';
import type { Guest } from '../../services/guest/guest.ts';
import { endUnlessComplete } from './requests.ts';

export const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

/** A refused client may send this much more, so that it can read the response before the connection is closed. */
export const LINGER = { milliseconds: 5000, bytes: 16 * 1024 * 1024 };

/** Operations that need no token here: `/init` and file transfers check tokens and signatures themselves. */
const EXEMPT = new Set([
  'GET /health',
  'HEAD /health',
  'POST /init',
  'GET /files',
  'HEAD /files',
  'POST /files',
]);

/** Authorizes requests, REST and RPC: fails with `unauthenticated` unless the access token matches. */
export function requireAccessToken(guest: Guest): onRequestHookHandler {
  return (request, reply, done) => {
    request.call.isTrusted = hasAccess(request.headers, guest);
    if (request.call.isTrusted || isExempt(request)) return done();
    endUnlessComplete(request.raw, reply.raw, LINGER);
    done(new EnvdError('unauthenticated', UNAUTHORIZED));
  };
}

/** Whether a request has the access token, if there is one. */
export function hasAccess({ 'x-access-token': shown }: IncomingHttpHeaders, guest: Guest): boolean {
  if (guest.accessToken === null) return true;
  return typeof shown === 'string' && isInHeader(guest.accessToken, shown);
}

function isExempt({ method, routeOptions }: FastifyRequest): boolean {
  return EXEMPT.has(`${method} ${routeOptions.url ?? ''}`);
}
