import { decodeName } from '../../../linux/paths/names.ts';
import { about } from '../../../linux/system/errno.ts';
import { type Entry, type EntrySource, readEntry } from './entry.ts';

/** Describes the entry at the absolute `path`, which is read at `at`. Throws `not_found`. */
export function stat(path: string, entries: EntrySource, at: Buffer = decodeName(path)): Promise<Entry> {
  return about(path, () => readEntry(path, entries, at));
}
