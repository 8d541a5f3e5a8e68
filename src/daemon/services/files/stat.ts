import { about } from '../../os/errno.ts';
import { type Entry, type EntrySource, readEntry } from './entry.ts';

/** Describes the entry at the absolute `path`; `at`: the path to read it by. Throws `not_found`. */
export function stat(path: string, entries: EntrySource, at: Buffer = Buffer.from(path)): Promise<Entry> {
  return about(path, () => readEntry(path, entries, at));
}
