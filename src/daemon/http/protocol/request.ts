// Reads the headers of RPCs: the user, the timeout and the keepalive interval.
import type { IncomingHttpHeaders } from 'node:http';
import { EnvdError } from '../../../base/errors.ts';
import type { User } from '../../linux/system/users.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { nameIn } from '../admission/identity.ts';

/** setTimeout() takes at most this time, which is almost 25 days. */
const MAX_TIMER_MS = 0x7fffffff;

/**
 * Returns the user on whose behalf an RPC runs: the one that HTTP basic authentication names, without a password, or else the
 * default user. Throws `unauthenticated` for an unknown user and for another scheme. Source: RFC 7617.
 */
export function callerOf({ request }: CallScope, guest: Guest): User {
  const { authorization } = request.headers;
  return guest.user(authorization === undefined ? null : userNameOf(authorization));
}

function userNameOf(authorization: string): string {
  const name = nameIn(authorization);
  if (name !== undefined) return name;
  throw new EnvdError('unauthenticated', "authorization must be 'Basic' with a user name and no password");
}

/** Returns `Connect-Timeout-Ms`; null (no limit) when it is absent or 0. Throws `invalid_argument` unless it is 1 to 10 digits. */
export function timeoutOf(headers: IncomingHttpHeaders): number | null {
  const text = headers['connect-timeout-ms'];
  if (text === undefined) return null;
  if (!/^\d{1,10}$/.test(String(text)))
    throw new EnvdError('invalid_argument', `invalid Connect-Timeout-Ms '${text}': send at most 10 digits`);
  const milliseconds = Number(text);
  return milliseconds === 0 ? null : Math.min(milliseconds, MAX_TIMER_MS);
}

/** The default interval of keepalive messages. */
const KEEPALIVE_SECONDS = 90;

/** Returns `Keepalive-Ping-Interval` in milliseconds; the default when it is absent or unusable. */
export function keepaliveMsOf(headers: IncomingHttpHeaders): number {
  const asked = String(headers['keepalive-ping-interval'] ?? '');
  const seconds = /^\d+$/.test(asked) ? Number(asked) : 0;
  return (seconds > 0 ? Math.min(seconds, Math.trunc(MAX_TIMER_MS / 1000)) : KEEPALIVE_SECONDS) * 1000;
}
