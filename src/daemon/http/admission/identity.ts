import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { idsOf } from '../../../base/http/call-ids.ts';

const BASIC = /^basic +([a-z\d+/=]*)$/i;
/** User names: POSIX' portable ones and some more. Anything else may be a misplaced secret. */
const USER = /^(?:[\w.@-]{1,64}|\d{1,10}:\d{1,10})$/;
/** A user and a group by number, and an empty password: what others take for a name has no colon. */
const NUMBERS = /^\d{1,10}:\d{1,10}(?=:$)/;
const IN_QUERY = /[?&]username=([^&]{1,64})/;

/** Who called, for the log: the ids of the request, and the user that it names. */
export function identityOf(request: IncomingMessage): Record<string, string> {
  const user = userOf(request.headers, request.url ?? '');
  return { ...(user !== null && { user }), ...idsOf(request) };
}

function userOf({ authorization }: IncomingHttpHeaders, url: string): string | null {
  if (authorization === undefined && !url.includes('?')) return null;
  const name = authorization === undefined ? IN_QUERY.exec(url)?.[1] : nameIn(authorization);
  return name !== undefined && USER.test(name) ? name : null;
}

/** The name in the header of HTTP basic authentication (RFC 7617); undefined for another scheme. */
export function nameIn(authorization: string): string | undefined {
  const [, credentials] = BASIC.exec(authorization) ?? [];
  if (!credentials) return undefined;
  const text = Buffer.from(credentials, 'base64').toString('utf8');
  return NUMBERS.exec(text)?.[0] ?? text.split(':', 1)[0];
}
