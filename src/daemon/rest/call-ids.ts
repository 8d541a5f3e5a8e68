import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';

/** What callers name their requests by; others are ignored. */
const REQUEST_ID = /^[\w.:+/=@-]{1,128}$/;
/** Source: W3C Trace Context, section 3.2: version, trace, parent, flags. */
const TRACEPARENT = /^(?!ff)[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}$/;
/** RFC 7617, with a name and perhaps a password. */
const BASIC = /^basic +([a-z\d+/=]{1,256})$/i;
/** POSIX' portable names of users, and some more; anything else may be a secret in the wrong place. */
const USER = /^[\w.@-]{1,64}$/;
const IN_QUERY = /[?&]username=([^&]{1,64})/;

/** The valid ids of a request in its answer. */
export function passOnIds({ headers }: IncomingMessage, response: ServerResponse): void {
  const { 'x-request-id': id, traceparent } = headers;
  if (id === undefined && traceparent === undefined) return;
  if (typeof id === 'string' && REQUEST_ID.test(id)) response.setHeader('x-request-id', id);
  if (typeof traceparent === 'string' && TRACEPARENT.test(traceparent))
    response.setHeader('traceparent', traceparent);
}

/** Who asked, for the log: the ids of the request, and the user as named by it. */
export function identityOf({ headers, url = '' }: IncomingMessage): Record<string, string> {
  const { 'x-request-id': id, traceparent } = headers;
  const user = userOf(headers, url);
  const trace = typeof traceparent === 'string' ? TRACEPARENT.exec(traceparent)?.[1] : undefined;
  return {
    ...(user !== null && { user }),
    ...(typeof id === 'string' && REQUEST_ID.test(id) && { requestId: id }),
    ...(trace !== undefined && { traceId: trace }),
  };
}

function userOf({ authorization }: IncomingHttpHeaders, url: string): string | null {
  const name = authorization === undefined ? IN_QUERY.exec(url)?.[1] : nameIn(authorization);
  return name !== undefined && USER.test(name) ? name : null;
}

function nameIn(authorization: string): string | undefined {
  const [, credentials] = BASIC.exec(authorization) ?? [];
  return credentials && Buffer.from(credentials, 'base64').toString('utf8').split(':', 1)[0];
}
