import { constants } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import { DirectoryWriter } from '../../linux/files/directory-writer.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { bytePath } from '../../linux/paths/byte-path.ts';
import { O_PATH } from '../../linux/paths/open-flags.ts';
import { MAX_PATH_BYTES } from '../../linux/paths/paths.ts';
import { explaining } from '../../linux/system/errno.ts';
import type { User } from '../../linux/system/users.ts';
import type { Entry, EntrySource } from '../../services/files/entries/entry.ts';
import { stat } from '../../services/files/entries/stat.ts';

/**
 * Makes a symbolic link with the text `target` at an absolute path. Replaces a file or a link there, and makes missing
 * parents. The user owns all of it. Throws `invalid_argument` for a text that no link can have, and for a directory at the
 * path.
 */
export async function makeLink(
  target: string,
  path: string,
  user: User,
  entries: EntrySource,
): Promise<Entry> {
  const text = bytePath(target);
  if (text === '' || text.includes('\0') || text.length > MAX_PATH_BYTES)
    throw new EnvdError('invalid_argument', `target must have 1 to ${MAX_PATH_BYTES} bytes, without NUL`);
  return explaining(path, async () => {
    using place = await PathHandle.open(path, false, entries.lanes);
    await place.makeParents(user);
    const file = await place.openFile(O_PATH | constants.O_DIRECTORY, '.');
    await using directory = new DirectoryWriter(file, place.owner);
    await directory.makeLink(place.name, text, user, BigInt(Date.now()) * 1_000_000n);
    return await stat(path, entries, place.path);
  });
}
