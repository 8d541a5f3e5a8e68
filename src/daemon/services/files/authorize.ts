import { EnvdError } from '../../../base/errors.ts';
import { isInHeader } from '../../../base/program/secrets.ts';
import type { Guest } from '../guest/guest.ts';
import { type FileOperation, type FileQuery, verifySignature } from './signature.ts';

/**
 * Authorizes a download or an upload. If an access token is set, the request needs the token or a signature made with
 * it. The signature is ignored if the request has a token. While none is set, every request is allowed if the guest is open, and
 * none otherwise: there is nothing that a signature could be made with. Throws `unauthenticated`.
 */
export function authorizeFile(
  { accessToken, isOpen }: Pick<Guest, 'accessToken' | 'isOpen'>,
  query: FileQuery,
  operation: FileOperation,
): void {
  if (isOpen) return;
  if (accessToken === null)
    throw new EnvdError(
      'unauthenticated',
      'unauthorized access, no access token is set yet: call /init first',
    );
  const { presentedToken } = query;
  if (presentedToken === undefined) {
    verifySignature(query, operation, accessToken, Math.floor(Date.now() / 1000));
  } else if (!isInHeader(accessToken, presentedToken)) {
    throw new EnvdError('unauthenticated', 'access token present in header but does not match');
  }
}
