import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { isSystemError } from '../../base/errors.ts';

/** O_TMPFILE of asm-generic/fcntl.h, which Node does not name; O_DIRECTORY differs between architectures. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;

/** EISDIR: kernels and file systems that take the flag for a plain open of a directory. */
const NOT_HERE = ['ENOTSUP', 'EOPNOTSUPP', 'EISDIR', 'EINVAL', 'EROFS', 'EACCES', 'EPERM'];

/**
 * Opens a new file that has no name yet, in `directory`'s file system, for reading and writing, mode 0666 less the
 * umask; it is gone when closed without `publishFile`. Null where the file system cannot do that.
 * Source: open(2), O_TMPFILE.
 */
export async function openUnnamed(directory: string): Promise<FileHandle | null> {
  try {
    return await open(directory, constants.O_RDWR | O_TMPFILE, 0o666);
  } catch (error) {
    if (isSystemError(error, ...NOT_HERE)) return null;
    throw error;
  }
}
