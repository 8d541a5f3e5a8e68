import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { idsOf } from '../../../base/http/call-ids.ts';

const BASIC = /^basic +([a-z\d+/=]*)$/i;
/** The log shows only user names like these, because other text may be a misplaced secret. */
const USER = /^(?:[\w.@-]{1,64}|\d{1,10}:\d{1,10})$/;
/** Credentials with a user and a group by number, and an empty password. Other names have no colon. */
const NUMBERS = /^\d{1,10}:\d{1,10}(?=:$)/;
const IN_QUERY = /[?&]username=([^&]{1,64})/;

/** Returns the ids of a request and the user that it names, for the log. */
export function identityOf(request: IncomingMessage): Record<string, string> {
  const user = userOf(request.headers, request.url ?? '');
  return { ...(user !== null && { user }), ...idsOf(request) };
}

function userOf({ authorization }: IncomingHttpHeaders, url: string): string | null {
  if (authorization === undefined && !url.includes('?')) return null;
  const name = authorization === undefined ? IN_QUERY.exec(url)?.[1] : nameIn(authorization);
  return name !== undefined && USER.test(name) ? name : null;
}

/** Returns the name in a header of HTTP basic authentication; undefined for another scheme. Source: RFC 7617. */
export function nameIn(authorization: string): string | undefined {
  const [, credentials] = BASIC.exec(authorization) ?? [];
  if (!credentials) return undefined;
  const text = Buffer.from(credentials, 'base64').toString('utf8');
  return NUMBERS.exec(text)?.[0] ?? text.split(':', 1)[0];
}
