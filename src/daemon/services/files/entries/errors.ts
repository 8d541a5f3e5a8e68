import { EnvdError, isSystemError, type SystemError } from '../../../../base/errors.ts';
import { PathHandle } from '../../../linux/files/place.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import { isOutOfSpace } from '../../../linux/system/errno.ts';

/** Tells whether `error` means a full disk. It may be a system error, or one already translated. */
export function isNoSpace(error: unknown): boolean {
  return isOutOfSpace(error) || (error instanceof EnvdError && error.kind === 'no_space');
}

/** Returns the error for content that does not fit at `path`. `length` is in bytes, or null if it is unknown. */
export async function noSpace(
  length: number | null,
  path: string,
  cause: unknown,
  lanes: Lanes,
): Promise<EnvdError> {
  if (isSystemError(cause) && (await lacksInodes(cause, path, lanes))) {
    return new EnvdError('no_space', 'not enough inodes available', { cause });
  }
  const attempt = length === null ? '' : `attempted to write ${length} bytes: `;
  return new EnvdError('no_space', `${attempt}not enough disk space available`, { cause });
}

/** Tells whether creating a file or directory failed because no inodes are left. */
async function lacksInodes({ syscall }: SystemError, path: string, lanes: Lanes): Promise<boolean> {
  if (!['open', 'mkdir'].includes(syscall)) return false;
  using place = await PathHandle.open(path, true, lanes);
  const { files, ffree } = await place.statfs();
  return files > 0 && ffree === 0;
}
