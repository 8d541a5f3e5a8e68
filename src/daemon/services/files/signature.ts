import { hash } from 'node:crypto';
import { EnvdError } from '../../../base/errors.ts';
import { equalSecrets } from '../../../base/program/secrets.ts';

/**
 * Names what a signature allows: `read` is a download, `write` an upload. Archives have operations of their own,
 * because whoever may read the file at a path may not read the tree below a directory that takes its place.
 */
export type FileOperation = 'read' | 'write' | 'read-archive' | 'write-archive';

/** The file of a request and the caller's credentials, exactly as in the query. */
export interface FileQuery {
  /** Empty when absent, and so is `username`. */
  readonly path: string;
  readonly username: string;
  readonly signature: string | undefined;
  /** A Unix time in seconds. */
  readonly expiration: string | undefined;
  /** The access token of the request's header. */
  readonly presentedToken: string | undefined;
}

type SignedQuery = Omit<FileQuery, 'presentedToken'>;

/**
 * Throws `unauthenticated` unless the query has a signature, made with `token`, that allows the operation on its path
 * and has not expired at `now`, which is a Unix time in seconds.
 */
export function verifySignature(
  query: SignedQuery,
  operation: FileOperation,
  token: string,
  now: number,
): void {
  const { signature, expiration } = query;
  if (signature === undefined) throw refused('missing signature query parameter');
  if (!equalSecrets(signature, signFile(query, operation, token))) throw refused('invalid signature');
  if (expiration === undefined) return;
  if (!/^-?\d+$/.test(expiration)) {
    throw new EnvdError('invalid_argument', `signature_expiration is not a whole number: '${expiration}'`);
  }
  if (Number(expiration) < now) throw refused('signature is already expired');
}

function signFile(query: SignedQuery, operation: FileOperation, token: string): string {
  const { path, username, expiration } = query;
  const fields = [path, operation, username, token, ...(expiration === undefined ? [] : [expiration])];
  const digest = hash('sha256', fields.join(':'), 'base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}

function refused(message: string): EnvdError {
  return new EnvdError('unauthenticated', message);
}
