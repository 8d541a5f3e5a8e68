import { EnvdError } from '../../../base/errors.ts';
import { equalSecrets } from '../../../base/secrets.ts';
import { type FileOperation, verifySignature } from './signature.ts';

export interface FileCredentials {
  readonly operation: FileOperation;
  /** The token that the caller shows, or undefined. */
  readonly shownToken: string | undefined;
  /** `path` and `username` exactly as in the query, empty when absent. */
  readonly path: string;
  readonly username: string;
  readonly signature: string | undefined;
  /** Unix time in seconds, as in the query. */
  readonly expiration: string | undefined;
}

/**
 * Lets a download or an upload through: anybody while no token is set, then who shows the token, then who bears a
 * signature made with it. A token that is shown decides alone. Throws `unauthenticated`.
 */
export function authorizeFile(accessToken: string | null, credentials: FileCredentials): void {
  if (accessToken === null) return;
  const { shownToken, ...request } = credentials;
  if (shownToken === undefined) {
    verifySignature({ ...request, token: accessToken, now: Math.floor(Date.now() / 1000) });
  } else if (!equalSecrets(shownToken, accessToken)) {
    throw new EnvdError('unauthenticated', 'access token present in header but does not match');
  }
}
