import { constants } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { type RawEntry, readDirectory } from '../../os/entries.ts';
import { about, explain } from '../../os/errno.ts';
import { describe, type Entry, type EntrySource } from './entry.ts';

/** So many entries are described, and encoded, in one turn of the event loop: in about 2 ms. */
const BATCH = 250;
const SLASH = Buffer.from('/');

/** A directory that is being listed: where it really is, how the answer calls it, what is left of it. */
interface Level {
  readonly directory: Buffer;
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
  const levels = [await openRoot(path, metadataPrefix)];
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
      const below = await openBelow(level, raw.name, metadataPrefix);
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

async function openRoot(path: string, metadataPrefix: string): Promise<Level> {
  const directory = await about(path, () => realpath(path, 'buffer'));
  try {
    return await open(directory, path === '/' ? '' : path, metadataPrefix);
  } catch (error) {
    if (!isSystemError(error, 'ENOTDIR')) throw explain(error, path);
    throw new EnvdError('invalid_argument', `path is not a directory: '${path}'`, { cause: error });
  }
}

/** Null when the directory has vanished, has become something else, or cannot be read. */
async function openBelow(
  { directory, shown }: Level,
  name: Buffer,
  metadataPrefix: string,
): Promise<Level | null> {
  try {
    return await open(Buffer.concat([directory, SLASH, name]), `${shown}/${name}`, metadataPrefix);
  } catch (error) {
    // Then it is this process that is in trouble, and the listing would be short for no reason of the tree's.
    if (isSystemError(error, 'EMFILE', 'ENFILE', 'ENOMEM')) throw explain(error, `${shown}/${name}`);
    return null;
  }
}

async function open(directory: Buffer, shown: string, metadataPrefix: string): Promise<Level> {
  const entries = await readDirectory(directory, metadataPrefix);
  return { directory, shown, entries: entries[Symbol.iterator]() };
}

function isDirectory({ mode }: RawEntry): boolean {
  return (mode & constants.S_IFMT) === constants.S_IFDIR;
}
