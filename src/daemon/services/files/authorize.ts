import { EnvdError } from '../../../base/errors.ts';
import { isInHeader } from '../../../base/program/secrets.ts';
import { type FileOperation, type FileQuery, verifySignature } from './signature.ts';

/**
 * Authorizes a download or an upload. If an access token is set, the request needs the token or a signature made with
 * it. The signature is ignored if the request has a token. Throws `unauthenticated`.
 */
export function authorizeFile(accessToken: string | null, query: FileQuery, operation: FileOperation): void {
  if (accessToken === null) return;
  const { presentedToken } = query;
  if (presentedToken === undefined) {
    verifySignature(query, operation, accessToken, Math.floor(Date.now() / 1000));
  } else if (!isInHeader(accessToken, presentedToken)) {
    throw new EnvdError('unauthenticated', 'access token present in header but does not match');
  }
}
