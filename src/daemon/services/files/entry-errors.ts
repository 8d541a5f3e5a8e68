import { EnvdError, type ErrorKind, isSystemError } from '../../../base/errors.ts';

/** What the kernel's refusals mean to a client. Source: the ERRORS sections of stat(2), mkdir(2), rename(2). */
const MEANINGS: Readonly<Record<string, readonly [kind: ErrorKind, text: string]>> = {
  ENOENT: ['not_found', 'path not found'],
  // A parent of the path is no directory, so that nothing can be there.
  ENOTDIR: ['not_found', 'path not found'],
  EEXIST: ['already_exists', 'path already exists'],
  ENOTEMPTY: ['already_exists', 'directory is not empty'],
  EISDIR: ['invalid_argument', 'path is a directory'],
  EINVAL: ['invalid_argument', 'path is not valid here'],
  ENAMETOOLONG: ['invalid_argument', 'path is too long'],
  ELOOP: ['failed_precondition', 'too many levels of symbolic links in path'],
  EROFS: ['failed_precondition', 'file system is read-only at path'],
  EBUSY: ['failed_precondition', 'path is in use'],
  ENOTCONN: ['failed_precondition', 'file system is not connected at path'],
  EACCES: ['permission_denied', 'permission denied for path'],
  EPERM: ['permission_denied', 'operation not permitted on path'],
  ENOSPC: ['no_space', 'not enough disk space or inodes for path'],
  EDQUOT: ['no_space', 'disk quota exceeded for path'],
  EMFILE: ['resource_exhausted', 'too many open files to reach path'],
  ENFILE: ['resource_exhausted', 'too many open files to reach path'],
};

/** The error a client sees for what went wrong at `path`; what has no meaning to a client stays as it is. */
export function pathError(error: unknown, path: string): unknown {
  if (!isSystemError(error)) return error;
  const meaning = MEANINGS[error.code];
  return meaning ? new EnvdError(meaning[0], `${meaning[1]}: '${path}'`, { cause: error }) : error;
}

/** Runs `operation`, whose failing system calls are about `path`. */
export async function about<T>(path: string, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    throw pathError(error, path);
  }
}
