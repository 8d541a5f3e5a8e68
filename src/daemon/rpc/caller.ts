import { EnvdError } from '../../base/errors.ts';
import type { User } from '../os/users.ts';
import type { Guest } from '../services/guest/guest.ts';

/**
 * The user that an RPC is made as: HTTP basic authentication with a name and no password (RFC 7617), or the
 * default user without it. Throws `unauthenticated` for an unknown user and for another scheme.
 */
export function callerOf(headers: Headers, guest: Guest): User {
  const authorization = headers.get('authorization');
  return guest.user(authorization === null ? null : userNameOf(authorization));
}

function userNameOf(authorization: string): string {
  const [, credentials] = /^basic +([a-z\d+/=]*)$/i.exec(authorization) ?? [];
  if (credentials === undefined) {
    throw new EnvdError('unauthenticated', "authorization must be 'Basic' with a user name and no password");
  }
  return Buffer.from(credentials, 'base64').toString('utf8').split(':', 1)[0] ?? '';
}
