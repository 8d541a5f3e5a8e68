import type { StatsFs } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { EnvdError, isSystemError, type SystemError } from '../../../base/errors.ts';
import { isOutOfSpace } from '../../os/errno.ts';

/** Whether `error` means a full disk: a system error, or one already translated. */
export function isNoSpace(error: unknown): boolean {
  return isOutOfSpace(error) || (error instanceof EnvdError && error.kind === 'no_space');
}

/** The error for content that does not fit at `path`; `length` in bytes, null if unknown. */
export async function noSpace(length: number | null, path: string, cause: unknown): Promise<EnvdError> {
  if (isSystemError(cause) && (await lacksInodes(cause, path))) {
    return new EnvdError('no_space', 'not enough inodes available', { cause });
  }
  const attempt = length === null ? '' : `attempted to write ${length} bytes: `;
  return new EnvdError('no_space', `${attempt}not enough disk space available`, { cause });
}

/** Whether creating a file or directory failed because no inodes are left. */
async function lacksInodes({ syscall }: SystemError, path: string): Promise<boolean> {
  if (!['open', 'mkdir'].includes(syscall)) return false;
  const { files, ffree } = await statfsNear(path);
  return files > 0 && ffree === 0;
}

/** statfs(2) of the path or its nearest existing ancestor. */
async function statfsNear(path: string): Promise<StatsFs> {
  return statfs(path).catch((error) => {
    if (path === '/') throw error;
    return statfsNear(dirname(path));
  });
}
