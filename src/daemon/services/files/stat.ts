import type { UserDatabase } from '../../os/users.ts';
import { type Entry, readEntry } from './entry.ts';
import { about } from './entry-errors.ts';

/** Describes what is at the absolute `path`. Throws `not_found`. */
export function stat(path: string, users: UserDatabase): Promise<Entry> {
  return about(path, () => readEntry(path, users));
}
