import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError, isSystemError, type SystemError } from '../../../base/errors.ts';
import { isOutOfSpace } from '../../os/errno.ts';

/** Whether there was no room, by the kernel's word or in an error that tells the client so. */
export function isNoSpace(error: unknown): boolean {
  return isOutOfSpace(error) || (error instanceof EnvdError && error.kind === 'no_space');
}

/** The error for content that does not fit; `length` in bytes, null when it is not known. */
export async function noSpace(length: number | null, cause: unknown): Promise<EnvdError> {
  if (isSystemError(cause) && (await lacksInodes(cause))) {
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
