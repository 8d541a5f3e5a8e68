import { statfs } from 'node:fs/promises';
import { EnvdError, type ErrorKind, isSystemError } from '../../../base/errors.ts';

/** What a system call on a client's path can fail with, and what the client did wrong then. */
const EXPLANATIONS: Readonly<Record<string, readonly [ErrorKind, string]>> = {
  ENOENT: ['not_found', 'path does not exist'],
  EISDIR: ['invalid_argument', 'path is a directory'],
  ENOTDIR: ['invalid_argument', 'a part of the path is not a directory'],
  ELOOP: ['invalid_argument', 'too many symbolic links in path'],
  ENAMETOOLONG: ['invalid_argument', 'path is too long'],
  EFBIG: ['invalid_argument', 'file is too large for its file system'],
  EACCES: ['permission_denied', 'permission denied'],
  EPERM: ['permission_denied', 'operation not permitted'],
  EROFS: ['permission_denied', 'file system is read-only'],
  ETXTBSY: ['failed_precondition', 'file is being executed'],
  EBUSY: ['failed_precondition', 'file is busy'],
  ENXIO: ['failed_precondition', 'nobody reads from the pipe or socket'],
  EPIPE: ['failed_precondition', 'nobody reads from the pipe any more'],
};

/** The error in the client's words and with its path, when it is one of those a client can cause. */
export function explain(error: unknown, path: string): unknown {
  if (!isSystemError(error)) return error;
  const explanation = EXPLANATIONS[error.code];
  if (!explanation) return error;
  const [kind, text] = explanation;
  return new EnvdError(kind, `${text}: '${path}'`, { cause: error });
}

export function isOutOfSpace(error: unknown): boolean {
  return isSystemError(error, 'ENOSPC', 'EDQUOT');
}

/** The error for content that does not fit; `length` in bytes, null when it is not known. */
export function noSpace(length: number | null, cause: unknown): EnvdError {
  const attempt = length === null ? '' : `attempted to write ${length} bytes: `;
  return new EnvdError('no_space', `${attempt}not enough disk space available`, { cause });
}

/** The error for a file or directory that could not be made in `directory`. */
export async function cannotCreate(
  directory: string,
  length: number | null,
  cause: unknown,
): Promise<EnvdError> {
  const { files, ffree } = await statfs(directory);
  if (files > 0 && ffree === 0) {
    return new EnvdError('no_space', 'not enough inodes available', { cause });
  }
  return noSpace(length, cause);
}
