import { EnvdError, type ErrorKind, isSystemError } from '../../base/errors.ts';

type Meaning = readonly [kind: ErrorKind, text: string];

/**
 * What the kernel's refusals mean to a client who named a path, over RPCs and `/files` alike; the path is added to the
 * text. Source: the ERRORS sections of open(2), stat(2), mkdir(2), rename(2), write(2). What is not here is no
 * client's doing, and stays an internal error.
 */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  ENOENT: ['not_found', 'path not found'],
  // A parent of the path is no directory, so that nothing can be there.
  ENOTDIR: ['not_found', 'path not found'],
  EEXIST: ['already_exists', 'path already exists'],
  ENOTEMPTY: ['already_exists', 'directory is not empty'],
  EISDIR: ['invalid_argument', 'path is a directory'],
  EINVAL: ['invalid_argument', 'operation is not possible on path'],
  ENAMETOOLONG: ['invalid_argument', 'path is too long'],
  EFBIG: ['invalid_argument', 'file is too large for its file system'],
  ELOOP: ['failed_precondition', 'too many levels of symbolic links in path'],
  EBUSY: ['failed_precondition', 'path is in use'],
  ETXTBSY: ['failed_precondition', 'file is being executed'],
  ENXIO: ['failed_precondition', 'nobody reads from the pipe or socket'],
  EPIPE: ['failed_precondition', 'nobody reads from the pipe any more'],
  ENOTCONN: ['failed_precondition', 'file system is not connected at path'],
  EACCES: ['permission_denied', 'permission denied for path'],
  EPERM: ['permission_denied', 'operation not permitted on path'],
  EROFS: ['permission_denied', 'file system is read-only at path'],
  ENOSPC: ['no_space', 'not enough disk space or inodes for path'],
  EDQUOT: ['no_space', 'disk quota exceeded for path'],
  EMFILE: ['resource_exhausted', 'too many open files to reach path'],
  ENFILE: ['resource_exhausted', 'too many open files to reach path'],
  ENOMEM: ['resource_exhausted', 'not enough memory to reach path'],
};

/** What means something else when the path is to be made, as an upload's is. */
const MEANINGS_IN_MAKING: typeof MEANINGS = {
  ENOTDIR: ['invalid_argument', 'a part of the path is not a directory'],
};

/**
 * The error that a client sees for what went wrong at `path`, which is to be found there or made; what has no meaning to
 * a client stays as it is.
 */
export function explain(error: unknown, path: string, purpose: 'find' | 'make' = 'find'): unknown {
  if (!isSystemError(error)) return error;
  const meaning = (purpose === 'make' && MEANINGS_IN_MAKING[error.code]) || MEANINGS[error.code];
  return meaning ? new EnvdError(meaning[0], `${meaning[1]}: '${path}'`, { cause: error }) : error;
}

/** Runs `operation`, whose failing system calls are about `path`. */
export async function about<T>(path: string, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    throw explain(error, path);
  }
}

/** What has run out, when `error` is a system call that failed for want of room, descriptors or memory; null otherwise. */
export function exhaustionOf(error: unknown): 'no_space' | 'resource_exhausted' | null {
  const kind = isSystemError(error) ? MEANINGS[error.code]?.[0] : null;
  return kind === 'no_space' || kind === 'resource_exhausted' ? kind : null;
}

export function isOutOfSpace(error: unknown): boolean {
  return exhaustionOf(error) === 'no_space';
}
