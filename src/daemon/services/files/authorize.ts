import { EnvdError } from '../../../base/errors.ts';
import { isInHeader } from '../../../base/program/secrets.ts';
import { type FileOperation, verifySignature } from './signature.ts';

export interface FileCredentials {
  readonly operation: FileOperation;
  /** The access token of the request, or undefined. */
  readonly presentedToken: string | undefined;
  /** `path` and `username` exactly as in the query, empty when absent. */
  readonly path: string;
  readonly username: string;
  readonly signature: string | undefined;
  /** Unix time in seconds, as in the query. */
  readonly expiration: string | undefined;
}

/**
 * Authorises a download or an upload. Passes if no access token is set; otherwise the request needs the token or a
 * signature made with it. If it has a token, the signature is ignored. Throws `unauthenticated`.
 */
export function authorizeFile(accessToken: string | null, credentials: FileCredentials): void {
  if (accessToken === null) return;
  const { presentedToken, ...request } = credentials;
  if (presentedToken === undefined) {
    verifySignature({ ...request, token: accessToken, now: Math.floor(Date.now() / 1000) });
  } else if (!isInHeader(accessToken, presentedToken)) {
    throw new EnvdError('unauthenticated', 'access token present in header but does not match');
  }
}
