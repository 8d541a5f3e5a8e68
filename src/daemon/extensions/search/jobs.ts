import { EnvdError } from '../../../base/errors.ts';
import { PathHandle } from '../../linux/files/place.ts';
import { type BytePath, joinBytes } from '../../linux/paths/byte-path.ts';
import { resolvePath } from '../../linux/paths/paths.ts';
import { explaining } from '../../linux/system/errno.ts';
import { onlyUser, type User } from '../../linux/system/users.ts';
import type { EntrySource } from '../../services/files/entries/entry.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { SearchJob } from './program/protocol.ts';

const MAX_NAMES = 1000;
const MAX_TEXT_BYTES = 64 * 1024;
const DEFAULT_FILE_BYTES = 16 * 1024 * 1024;
const MAX_FILE_BYTES = 64 * 1024 * 1024;
/** A search without a timeout of the client has this limit, in milliseconds. */
const DEFAULT_LIMIT_MS = 60_000;
/** A search ends after this time at the latest, in milliseconds. */
const MAX_LIMIT_MS = 600_000;

export interface SearchSource {
  readonly guest: Guest;
  readonly entries: EntrySource;
}

/** The requests of both calls have these members. */
export interface SearchQuery {
  readonly path: string;
  readonly name: readonly string[];
  readonly content: string;
  readonly regex: boolean;
  readonly ignoreCase: boolean;
  readonly gitignore: boolean;
  readonly maxFileBytes: number;
}

/**
 * Returns the job for a request of `user`. `timeoutMs` is the timeout of the client, or null. The path may lead through
 * symbolic links, which are resolved here with the rights of those who made them. Throws `invalid_argument`, and the errors
 * of the path.
 */
export async function createJob<Task extends SearchJob['task']>(
  query: SearchQuery,
  task: Task,
  { user, timeoutMs }: { readonly user: User; readonly timeoutMs: number | null },
  { guest, entries }: SearchSource,
): Promise<SearchJob> {
  const { content, regex, ignoreCase, gitignore } = query;
  const shown = resolvePath(query.path, user, guest.defaultWorkdir);
  requireShort(query);
  const { root, owner } = await explaining(shown, () => locate(shown, entries));
  return {
    rights: rightsOf(user, owner, entries),
    limitMs: Math.min(timeoutMs ?? DEFAULT_LIMIT_MS, MAX_LIMIT_MS),
    ...{ root, shown, names: query.name, gitignore, task },
    pattern: content === '' ? null : { source: content, isRegex: regex, ignoreCase },
    maxFileBytes: Math.min(query.maxFileBytes || DEFAULT_FILE_BYTES, MAX_FILE_BYTES),
  };
}

function requireShort({ name, content }: SearchQuery): void {
  const refuse = (what: string) => {
    throw new EnvdError('invalid_argument', `${what}: send less`);
  };
  if (name.length > MAX_NAMES) refuse(`name has more than ${MAX_NAMES} globs`);
  if (name.some((glob) => glob === '' || glob === '!')) refuse('name has an empty glob');
  const bytes = name.reduce((sum, glob) => sum + Buffer.byteLength(glob), Buffer.byteLength(content));
  if (bytes > MAX_TEXT_BYTES) refuse(`name and content have more than ${MAX_TEXT_BYTES} bytes`);
}

/** Returns the path without symbolic links, and the user whose link was followed, or null. */
async function locate(
  path: string,
  { lanes }: EntrySource,
): Promise<{ root: BytePath; owner: number | null }> {
  using place = await PathHandle.open(path, true, lanes);
  if ((await place.status()) === null) throw new EnvdError('not_found', `path not found: '${path}'`);
  const directory = await place.directoryPath();
  return { root: place.name === '.' ? directory : joinBytes(directory, place.name), owner: place.owner };
}

/** Returns the rights of the search. Behind a link of another user, root has no more rights than that user. */
function rightsOf(user: User, owner: number | null, { users }: EntrySource): SearchJob['rights'] {
  if (process.geteuid?.() !== 0) return null;
  const isLed = user.uid === 0 && owner !== null;
  // A daemon that serves its own user alone lacks the capabilities to set even its own ids.
  if (!isLed && onlyUser() !== null) return null;
  const { uid, gid, groups } = isLed ? users.lookup(String(owner)) : user;
  return { uid, gid, groups };
}
