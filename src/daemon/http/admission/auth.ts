import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyRequest, onRequestHookHandler } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import { WITHOUT_TOKEN } from '../../../base/http/operations.ts';
import { isInHeader } from '../../../base/program/secrets.ts';
import type { Guest } from '../../services/guest/guest.ts';

export const UNAUTHORIZED =
  'unauthorized access, please provide a valid access token or method signing if supported';

const TOKEN_PROTOCOL = /(?:^|,)[ \t]*envd\.token\.([\w-]+)[ \t]*(?:,|$)/;

/** Returns the step that authorizes requests. It fails with `unauthenticated` if the access token does not match. */
export function requireAccessToken(guest: Guest): onRequestHookHandler {
  return (request, _reply, done) => {
    request.call.isTrusted = hasAccess(request.headers, guest);
    if (request.call.isTrusted || isExempt(request)) return done();
    done(new EnvdError('unauthenticated', UNAUTHORIZED));
  };
}

/** Returns whether a request has the access token, or needs none. */
export function hasAccess(headers: IncomingHttpHeaders, guest: Guest): boolean {
  if (guest.accessToken === null) return guest.isOpen;
  const shown = headers['x-access-token'] ?? tokenInProtocols(headers['sec-websocket-protocol']);
  return typeof shown === 'string' && isInHeader(guest.accessToken, shown);
}

/**
 * Returns the token among the subprotocols of a WebSocket, where it has this prefix and is in base64url. Pages in browsers can set
 * no header of a WebSocket, and a URL is logged by proxies. Source: RFC 6455, section 11.3.4.
 */
function tokenInProtocols(protocols = ''): string | undefined {
  const [, token] = TOKEN_PROTOCOL.exec(protocols) ?? [];
  return token === undefined ? undefined : Buffer.from(token, 'base64url').toString();
}

function isExempt({ method, routeOptions }: FastifyRequest): boolean {
  return WITHOUT_TOKEN.has(`${method} ${routeOptions.url ?? ''}`);
}
