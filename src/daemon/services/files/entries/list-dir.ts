import { constants } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import {
  DirectoryListing,
  fileTypeOf,
  type ListedEntries,
  type RawEntry,
} from '../../../linux/files/entries.ts';
import { PathHandle } from '../../../linux/files/place.ts';
import { type BytePath, bytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import { encodeName } from '../../../linux/paths/names.ts';
import { explain } from '../../../linux/system/errno.ts';
import { describe, type Entry, type EntrySource } from './entry.ts';

/** This many entries, and bytes of them, are described and encoded per turn of the event loop. */
const BATCH = 250;
const BATCH_BYTES = 128 * 1024;
/** The entries of one listing take at most this many bytes of memory. */
const MAX_BYTES = 64 * 1024 * 1024;

/** Describes a directory that is being listed, with its remaining entries. */
interface Level {
  /** The listing of its mount. */
  readonly top: DirectoryListing;
  /** Relative to `top`. */
  readonly path: BytePath;
  /** The path in the response. */
  readonly shown: string;
  readonly entries: Iterator<RawEntry>;
  /** The entries take this many bytes of memory. */
  readonly bytes: number;
}

/**
 * Lists a directory `depth` levels deep (0 means 1) in batches, sorted by the bytes of the names, parents before
 * children. `path` may be a symbolic link and is the prefix of the listed paths. Links below it are not followed.
 * Entries that vanish meanwhile and subdirectories that cannot be read are omitted. Throws `not_found`,
 * `invalid_argument` if it is not a directory, `failed_precondition` for a loop of symbolic links, and `resource_exhausted`
 * for more than 64 MiB of entries. `keep` is told how many bytes more the listing keeps in memory.
 */
export async function* listDir(
  path: string,
  depth: number,
  source: EntrySource,
  keep: (bytes: number) => void = () => {},
): AsyncGenerator<Entry[]> {
  const described = { names: source.users.names(), metadataPrefix: source.metadataPrefix };
  using owned = new DisposableStack();
  const levels: Level[] = [];
  let kept = 0;
  const enter = (level: Level) => {
    levels.push(level);
    kept += level.bytes;
    if (kept > MAX_BYTES)
      throw new EnvdError(
        'resource_exhausted',
        `too many entries for one listing: '${path}': list fewer levels`,
      );
    keep(level.bytes);
  };
  enter(await openRoot(path, depth > 1, source, owned));
  let batch: Entry[] = [];
  let bytes = 0;
  for (let level = levels.at(-1); level; level = levels.at(-1)) {
    const { value: raw, done } = level.entries.next();
    if (done) {
      levels.pop();
      continue;
    }
    const name = encodeName(raw.name);
    batch.push(describe(raw, name, `${level.shown}/${name}`, described));
    bytes += level.shown.length + raw.bytes;
    if (levels.length < depth && fileTypeOf(raw.mode) === constants.S_IFDIR) {
      const below = await openBelow(level, raw.name, source, owned);
      if (below) enter(below);
    }
    if (batch.length === BATCH || bytes > BATCH_BYTES) {
      yield batch;
      batch = [];
      bytes = 0;
      await setImmediate();
    }
  }
  yield batch;
}

async function openRoot(
  path: string,
  isDeep: boolean,
  source: EntrySource,
  owned: DisposableStack,
): Promise<Level> {
  try {
    return await openMount(bytePath(path), path === '/' ? '' : path, isDeep, source, owned);
  } catch (error) {
    throw await listError(error, path, source);
  }
}

/** Opens a directory by its absolute path. */
async function openMount(
  path: BytePath,
  shown: string,
  isDeep: boolean,
  { metadataPrefix, lanes }: EntrySource,
  owned: DisposableStack,
): Promise<Level> {
  const top = owned.use(await DirectoryListing.open(path, metadataPrefix, isDeep, lanes));
  return { top, path: '', shown, ...startOf(top) };
}

function startOf({ entries, bytes }: ListedEntries): Pick<Level, 'entries' | 'bytes'> {
  return { entries: entries[Symbol.iterator](), bytes };
}

/** Translates an error. ENOTDIR may concern the path itself or one of its parents. */
async function listError(error: unknown, path: string, source: EntrySource): Promise<unknown> {
  if (!isSystemError(error, 'ENOTDIR') || !(await exists(path, source))) return explain(error, path);
  return new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
}

async function exists(path: string, { lanes }: EntrySource): Promise<boolean> {
  try {
    using place = await PathHandle.open(path, false, lanes);
    return (await place.status()) !== null;
  } catch {
    return false;
  }
}

/** Returns null when the directory has vanished, was replaced, or cannot be read. */
async function openBelow(
  { top, path: above, shown: shownAbove }: Level,
  name: Buffer,
  source: EntrySource,
  owned: DisposableStack,
): Promise<Level | null> {
  const path = joinBytes(above, bytePath(name));
  const shown = `${shownAbove}/${encodeName(name)}`;
  try {
    const listed = await top.below(path).catch((error) => {
      if (!isSystemError(error, 'EXDEV')) throw error;
      return null;
    });
    if (listed) return { top, path, shown, ...startOf(listed) };
    // It is another mount, which may not answer.
    return await openMount(joinBytes(top.path, path), shown, true, source, owned);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR', 'ELOOP', 'ENAMETOOLONG', 'EACCES', 'EPERM')) return null;
    // A listing must be complete, or fail.
    throw explain(error, shown);
  }
}
