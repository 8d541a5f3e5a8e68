import { about } from '../../os/errno.ts';
import { type Entry, type EntrySource, readEntry } from './entry.ts';

/** Describes the entry at the absolute `path`. Throws `not_found`. */
export function stat(path: string, entries: EntrySource): Promise<Entry> {
  return about(path, () => readEntry(path, entries));
}
