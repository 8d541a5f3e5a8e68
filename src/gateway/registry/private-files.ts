import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { isSystemError } from '../../base/errors.ts';

/** SQLite keeps files with these endings beside a database. */
const COMPANIONS = ['-wal', '-shm', '-journal'] as const;
const { O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;

/**
 * Sets the modes of a database and its companions to 0600, because they contain tokens. SQLite gives new companions the mode
 * of the database.
 */
export async function restrictFiles(path: string): Promise<void> {
  await restrict(path, O_CREAT);
  for (const companion of COMPANIONS) {
    try {
      await restrict(path + companion, O_NOFOLLOW);
    } catch (error) {
      if (!isSystemError(error, 'ENOENT')) throw error;
    }
  }
}

async function restrict(path: string, flags: number): Promise<void> {
  await using file = await open(path, O_RDONLY | O_NONBLOCK | flags, 0o600);
  const { mode } = await file.stat();
  if ((mode & 0o077) !== 0) await file.chmod(0o600);
}
