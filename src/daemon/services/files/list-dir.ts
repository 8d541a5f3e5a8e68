import { constants } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { type BytePath, bytePath, joinBytes } from '../../os/byte-path.ts';
import { DirectoryListing, type RawEntry } from '../../os/entries.ts';
import { explain } from '../../os/errno.ts';
import { Place } from '../../os/place.ts';
import { describe, type Entry, type EntrySource } from './entry.ts';

/** Entries that are described and encoded per turn of the event loop, which takes about 2 ms. */
const BATCH = 250;

/** A directory that is being listed, with its remaining entries. */
interface Level {
  /** Relative to the root of the listing. */
  readonly path: BytePath;
  /** Path in the response. */
  readonly shown: string;
  readonly entries: Iterator<RawEntry>;
}

/**
 * Lists a directory `depth` levels deep (0 means 1) in batches, sorted by the bytes of the names, parents before
 * children. `path` may be a symbolic link and is the prefix of the listed paths; links below it are not followed.
 * Entries that vanish meanwhile and subdirectories that cannot be read are omitted. Throws `not_found`,
 * `invalid_argument` if it is not a directory, `failed_precondition` for a loop of symbolic links.
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

/** ENOTDIR may concern the path itself or one of its parents. */
async function listError(error: unknown, path: string): Promise<unknown> {
  if (!isSystemError(error, 'ENOTDIR') || !(await exists(path))) return explain(error, path);
  return new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
}

async function exists(path: string): Promise<boolean> {
  try {
    using place = await Place.open(path, false);
    return (await place.status()) !== null;
  } catch {
    return false;
  }
}

/** Null when the directory has vanished, was replaced, or cannot be read. */
async function openBelow(root: DirectoryListing, level: Level, name: Buffer): Promise<Level | null> {
  const path = joinBytes(level.path, bytePath(name));
  const shown = `${level.shown}/${name}`;
  try {
    return { path, shown, entries: (await root.below(path))[Symbol.iterator]() };
  } catch (error) {
    // Limits of the daemon, not properties of the tree: the listing must not be silently incomplete.
    if (isSystemError(error, 'EMFILE', 'ENFILE', 'ENOMEM')) throw explain(error, shown);
    return null;
  }
}

function isDirectory({ mode }: RawEntry): boolean {
  return (mode & constants.S_IFMT) === constants.S_IFDIR;
}
