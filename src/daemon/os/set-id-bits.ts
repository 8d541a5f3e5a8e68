import type { FileHandle } from 'node:fs/promises';

/** S_ISUID and S_ISGID of inode(7). */
const SET_ID = 0o6000;

/**
 * Takes the set-user-ID and set-group-ID bits from an open file or directory. The kernel does so when somebody without
 * privileges writes to a file and, but for one case, when its owner changes (chown(2)); not when root writes to it.
 */
export async function dropSetIdBits(file: FileHandle): Promise<void> {
  const { mode } = await file.stat();
  if (mode & SET_ID) await file.chmod(mode & 0o7777 & ~SET_ID);
}
