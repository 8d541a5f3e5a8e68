import { hash } from 'node:crypto';
import { EnvdError } from '../../../base/errors.ts';
import { equalSecrets } from '../../../base/program/secrets.ts';

/**
 * Operation that a signature allows: `read` is a download, `write` an upload. Archives have operations of their own:
 * whoever may read the file at a path may not read the tree below a directory that takes its place.
 */
export type FileOperation = 'read' | 'write' | 'read-archive' | 'write-archive';

export interface SignedRequest {
  /** `path` and `username` exactly as in the query, empty when absent. */
  readonly path: string;
  readonly username: string;
  readonly operation: FileOperation;
  readonly token: string;
  /** As in the query; undefined when absent. */
  readonly signature: string | undefined;
  /** Unix time in seconds, as in the query; undefined when absent. */
  readonly expiration: string | undefined;
  /** Unix time in seconds. */
  readonly now: number;
}

/** The signature, made with `token`, that allows one operation on one path. */
function signFile(request: Omit<SignedRequest, 'signature' | 'now'>): string {
  const { path, operation, username, token, expiration } = request;
  const fields = [path, operation, username, token, ...(expiration === undefined ? [] : [expiration])];
  const digest = hash('sha256', fields.join(':'), 'base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}

/** Throws `unauthenticated` unless the request has a valid signature that has not expired. */
export function verifySignature(request: SignedRequest): void {
  const { signature, expiration, now } = request;
  if (signature === undefined) throw refused('missing signature query parameter');
  if (!equalSecrets(signature, signFile(request))) throw refused('invalid signature');
  if (expiration === undefined) return;
  if (!/^-?\d+$/.test(expiration)) {
    throw new EnvdError('invalid_argument', `signature_expiration is not a whole number: '${expiration}'`);
  }
  if (Number(expiration) < now) throw refused('signature is already expired');
}

function refused(message: string): EnvdError {
  return new EnvdError('unauthenticated', message);
}
