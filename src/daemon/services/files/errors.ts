import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError, type ErrorKind, isSystemError, type SystemError } from '../../../base/errors.ts';

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

const OUT_OF_SPACE = ['ENOSPC', 'EDQUOT'];

export function isOutOfSpace(error: unknown): boolean {
  return isSystemError(error, ...OUT_OF_SPACE);
}

/** The same, also for errors that tell the client so. */
export function isNoSpace(error: unknown): boolean {
  return isOutOfSpace(error) || (error instanceof EnvdError && error.kind === 'no_space');
}

/** The error for content that does not fit; `length` in bytes, null when it is not known. */
export async function noSpace(length: number | null, cause: unknown): Promise<EnvdError> {
  if (isSystemError(cause, ...OUT_OF_SPACE) && (await lacksInodes(cause))) {
    return new EnvdError('no_space', 'not enough inodes available', { cause });
  }
  const attempt = length === null ? '' : `attempted to write ${length} bytes: `;
  return new EnvdError('no_space', `${attempt}not enough disk space available`, { cause });
}

/** Whether what failed is the making of a file or directory, for want of an inode. */
async function lacksInodes({ syscall, path }: SystemError): Promise<boolean> {
  if (path === undefined || !['open', 'mkdir'].includes(syscall)) return false;
  // Of a file without a name, it is the directory's path.
  const { files, ffree } = await statfs(path).catch(() => statfs(dirname(path)));
  return files > 0 && ffree === 0;
}
