import { basename } from 'node:path';
import { readRawEntry } from '../../../linux/files/entries.ts';
import { decodeName } from '../../../linux/paths/names.ts';
import { explaining } from '../../../linux/system/errno.ts';
import { describe, type Entry, type EntrySource } from './entry.ts';

/**
 * Describes the entry at the absolute `path`, which is read at `at`, without following a final symbolic link. It ignores
 * failures to read a link's target or the metadata. Throws `not_found`, and what other errors of lstat(2) mean.
 */
export function stat(
  path: string,
  { users, lanes, metadataPrefix }: EntrySource,
  at: Buffer = decodeName(path),
): Promise<Entry> {
  return explaining(path, async () => {
    const raw = await readRawEntry(at, metadataPrefix, lanes);
    return describe(raw, basename(path) || '/', path, { names: users.names(), metadataPrefix });
  });
}
