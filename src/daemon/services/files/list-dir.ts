import { constants } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { type BytePath, bytePath, joinBytes } from '../../os/byte-path.ts';
import { DirectoryListing, type RawEntry } from '../../os/entries.ts';
import { explain } from '../../os/errno.ts';
import { describe, type Entry, type EntrySource } from './entry.ts';

/** So many entries are described, and encoded, in one turn of the event loop: in about 2 ms. */
const BATCH = 250;

/** A directory that is being listed: its path from the first one, how the answer calls it, what is left of it. */
interface Level {
  readonly path: BytePath;
  readonly shown: string;
  readonly entries: Iterator<RawEntry>;
}

/**
 * Lists a directory `depth` levels deep (0 means 1), in batches: sorted by the bytes of the names, parents before
 * children. Links below it are described, not followed; the directory itself may be a link, and the paths start
 * with the one asked for. What vanishes meanwhile is left out, and so is what is in a directory below that cannot
 * be read. Throws `not_found`, `invalid_argument` when it is no directory, `failed_precondition` for a link cycle.
 */
export async function* listDir(
  path: string,
  depth: number,
  { users, metadataPrefix }: EntrySource,
): AsyncGenerator<Entry[]> {
  const described = { names: users.names(), metadataPrefix };
  using root = await openRoot(path, metadataPrefix, depth > 1);
  const levels: Level[] = [
    { path: '', shown: path === '/' ? '' : path, entries: root.entries[Symbol.iterator]() },
  ];
  let batch: Entry[] = [];
  for (let level = levels.at(-1); level; level = levels.at(-1)) {
    const { value: raw, done } = level.entries.next();
    if (done) {
      levels.pop();
      continue;
    }
    const name = raw.name.toString();
    batch.push(describe(raw, name, `${level.shown}/${name}`, described));
    if (levels.length < depth && isDirectory(raw)) {
      const below = await openBelow(root, level, raw.name);
      if (below) levels.push(below);
    }
    if (batch.length === BATCH) {
      yield batch;
      batch = [];
      await setImmediate();
    }
  }
  yield batch;
}

async function openRoot(path: string, metadataPrefix: string, isDeep: boolean): Promise<DirectoryListing> {
  try {
    return await DirectoryListing.open(path, metadataPrefix, isDeep);
  } catch (error) {
    throw await listError(error, path);
  }
}

/** ENOTDIR is told for the path itself and for a part of it alike. */
async function listError(error: unknown, path: string): Promise<unknown> {
  if (!isSystemError(error, 'ENOTDIR') || !(await exists(path))) return explain(error, path);
  return new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

/** Null when the directory has vanished, has become something else, or cannot be read. */
async function openBelow(root: DirectoryListing, level: Level, name: Buffer): Promise<Level | null> {
  const path = joinBytes(level.path, bytePath(name));
  const shown = `${level.shown}/${name}`;
  try {
    return { path, shown, entries: (await root.below(path))[Symbol.iterator]() };
  } catch (error) {
    // Then it is this process that is in trouble, and the listing would be short for no reason of the tree's.
    if (isSystemError(error, 'EMFILE', 'ENFILE', 'ENOMEM')) throw explain(error, shown);
    return null;
  }
}

function isDirectory({ mode }: RawEntry): boolean {
  return (mode & constants.S_IFMT) === constants.S_IFDIR;
}
