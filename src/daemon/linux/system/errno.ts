import { EnvdError, type ErrorKind, isSystemError } from '../../../base/errors.ts';

type Meaning = readonly [kind: ErrorKind, text: string];

/**
 * The client's error for a system call that failed at a path, for RPCs and `/files` alike. The path is appended to the text.
 * Errors that are not listed are named by their codes, because a file of the kernel or a FUSE server of the guest may answer
 * with any. Source: the ERRORS sections of open(2), stat(2), mkdir(2), rename(2) and write(2).
 */
const MEANINGS: Readonly<Record<string, Meaning>> = {
  ENOENT: ['not_found', 'path not found'],
  // A parent of the path is not a directory, so the path does not exist.
  ENOTDIR: ['not_found', 'path not found'],
  EEXIST: ['already_exists', 'path already exists'],
  ENOTEMPTY: ['already_exists', 'directory is not empty'],
  EISDIR: ['invalid_argument', 'path is a directory'],
  EINVAL: ['invalid_argument', 'operation is not possible on path'],
  ESPIPE: ['invalid_argument', 'a pipe or device has no offset'],
  ENAMETOOLONG: ['invalid_argument', 'path is too long'],
  EFBIG: ['invalid_argument', 'file is too large for its file system'],
  ELOOP: ['failed_precondition', 'too many levels of symbolic links in path'],
  EBUSY: ['failed_precondition', 'path is in use'],
  ETXTBSY: ['failed_precondition', 'file is being executed'],
  ENXIO: ['failed_precondition', 'no process reads from the pipe or socket'],
  EPIPE: ['failed_precondition', 'no process reads from the pipe any more'],
  ENOTCONN: ['failed_precondition', 'file system is not connected at path'],
  EACCES: ['permission_denied', 'permission denied for path'],
  EPERM: ['permission_denied', 'operation not permitted on path'],
  ETIMEDOUT: ['deadline_exceeded', 'file system does not answer'],
  EAGAIN: ['deadline_exceeded', 'another process holds a lease on the file'],
  EROFS: ['permission_denied', 'file system is read-only at path'],
  ENOSPC: ['no_space', 'not enough disk space or inodes for path'],
  EDQUOT: ['no_space', 'disk quota exceeded for path'],
  EMFILE: ['resource_exhausted', 'too many open files to reach path'],
  ENFILE: ['resource_exhausted', 'too many open files to reach path'],
  EOVERFLOW: ['resource_exhausted', 'too many entries or attributes at path'],
  ENOMEM: ['resource_exhausted', 'not enough memory to reach path'],
};

/** The meanings that are different for operations that create the path, such as uploads. */
const MEANINGS_FOR_CREATION: typeof MEANINGS = {
  ENOTDIR: ['invalid_argument', 'a part of the path is not a directory'],
};

/** Tells that a directory on the way to a file is missing. It has the shape of a system error. */
export class MissingParent extends Error {
  readonly code = 'ENOENT';
  readonly errno = -2;
  readonly syscall = 'open';
}

/**
 * Translates a system error at `path` into the error that the client gets; returns other values unchanged. `purpose` is
 * whether the operation was to find the path or to create it.
 */
export function explain(error: unknown, path: string, purpose: 'find' | 'make' = 'find'): unknown {
  if (!isSystemError(error)) return error;
  const [kind, text] =
    (purpose === 'make' && MEANINGS_FOR_CREATION[error.code]) ||
    MEANINGS[error.code] ||
    otherMeaning(error.code);
  return new EnvdError(kind, `${text}: '${path}'`, { cause: error });
}

function otherMeaning(code: string): Meaning {
  const isOurFault = code === 'EBADF' || code === 'EFAULT';
  return [isOurFault ? 'internal' : 'failed_precondition', `${code} at path`];
}

/** Runs `operation` and translates its system errors as `explain` does. */
export async function explaining<T>(path: string, operation: () => Promise<T>): Promise<T> {
  try {
    return await operation();
  } catch (error) {
    throw explain(error, path);
  }
}

/** Returns the kind of a system error that means lack of disk space, file descriptors or memory; otherwise null. */
export function exhaustionOf(error: unknown): 'no_space' | 'resource_exhausted' | null {
  return isSystemError(error) ? exhaustionBy(error.code) : null;
}

/** Does the same for the name of an errno. */
export function exhaustionBy(code: string): 'no_space' | 'resource_exhausted' | null {
  const kind = MEANINGS[code]?.[0];
  return kind === 'no_space' || kind === 'resource_exhausted' ? kind : null;
}

export function isOutOfSpace(error: unknown): boolean {
  return exhaustionOf(error) === 'no_space';
}
