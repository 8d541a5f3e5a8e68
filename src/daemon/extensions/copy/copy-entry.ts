import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { bytePath } from '../../linux/paths/byte-path.ts';
import { explain, explaining } from '../../linux/system/errno.ts';
import type { User } from '../../linux/system/users.ts';
import { copyTree } from '../../services/files/copy-tree.ts';
import type { Entry, EntrySource } from '../../services/files/entries/entry.ts';
import { stat } from '../../services/files/entries/stat.ts';
import { inStage, isInside, openDestination } from '../../services/files/move.ts';

/**
 * Copies `source` to `destination`, which gets its name only when the copy is complete. A symbolic link is copied as a link.
 * A file or an empty directory at the destination is replaced. Owners, modes without set-id bits, attributes, times and hard
 * links within the tree are kept. If `signal` aborts before the end, nothing is left. Throws `not_found`, `invalid_argument`
 * for a copy into itself, `permission_denied` for a source behind a link of another user than root, and `failed_precondition`
 * for pipes and devices.
 */
export async function copyEntry(
  source: string,
  destination: string,
  user: User,
  entries: EntrySource,
  signal: AbortSignal,
): Promise<Entry> {
  const { lanes } = entries;
  using from = await explaining(source, () => PathHandle.open(source, false, lanes));
  if ((await explaining(source, () => from.status())) === null)
    throw new EnvdError('not_found', `path not found: '${source}'`);
  // A link of another user could lead to files that this user may not read, because the daemon reads with its own rights.
  if (from.owner !== null)
    throw new EnvdError('permission_denied', `path leads through a link of another user: '${source}'`);
  using to = await openDestination(destination, user, lanes);
  try {
    await to.assertMayChange();
    if (await isInside(to, from)) {
      const message = `cannot copy a directory into itself: '${source}' to '${destination}'`;
      throw new EnvdError('invalid_argument', message);
    }
    await inStage(to, destination, lanes, async (copy) => {
      const tree = { directory: from.directory, name: from.name, lane: from.lane };
      await copyTree(tree, { path: bytePath(copy.path), lane: copy.lane }, source, lanes, signal);
      signal.throwIfAborted();
      await to.moveHere(copy);
    });
  } catch (error) {
    throw copyError(error, source, destination);
  }
  return await stat(destination, entries, to.path);
}

function copyError(error: unknown, source: string, destination: string): unknown {
  if (isSystemError(error, 'EISDIR', 'ENOTDIR')) {
    const message = `cannot replace a directory by a file or a file by a directory: '${destination}'`;
    return new EnvdError('invalid_argument', message, { cause: error });
  }
  return explain(error, isSystemError(error, 'ENOENT') ? source : destination);
}
