import { isSystemError } from '../../../../base/errors.ts';
import { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import { type BytePath, displayPath, joinBytes } from '../../../linux/paths/byte-path.ts';
import { mountOf, readMounts } from '../../../linux/paths/mounts.ts';
import { MAX_DEPTH } from '../../../linux/paths/paths.ts';
import { GitIgnores, NameFilter } from './globs.ts';
import { type FoundEntry, OpenEntry } from './open-entry.ts';
import type { SearchJob } from './protocol.ts';

/** This many names are sorted together and kept in memory at each level. */
const SORTED = 20_000;
const GITIGNORE_BYTES = 256 * 1024;

/** These errors concern the program and not the entry. */
const EXHAUSTED = ['EMFILE', 'ENFILE', 'ENOMEM'];
/** Entries that were removed or replaced after their names were read cause these errors. */
const VANISHED = ['ENOENT', 'ENOTDIR', 'ELOOP', 'ESTALE'];

/** A directory that is being read. */
interface Directory {
  readonly handle: DirectoryHandle;
  readonly path: BytePath;
  /** The path relative to the root. It is empty for the root. */
  readonly relative: string;
  readonly depth: number;
}

/**
 * Yields the entries below a directory that the job asks for, sorted by name within each directory, or a single file. It
 * opens nothing by path a second time and follows no symbolic link, so that nobody can lead the walk elsewhere. It does not
 * enter file systems of the kernel (proc, sysfs, …) unless the root is in one.
 */
export class TreeWalk {
  /** The number of files and directories that could not be read. */
  unreadable = 0;
  readonly #job: SearchJob;
  readonly #names: NameFilter;
  readonly #ignores = new GitIgnores();
  readonly #onStep: () => void;

  /** @param onStep is called for each directory */
  constructor(job: SearchJob, onStep: () => void = () => {}) {
    this.#job = job;
    this.#onStep = onStep;
    this.#names = new NameFilter(job.names);
  }

  *entries(): Generator<FoundEntry> {
    const { root } = this.#job;
    using handle = openIfDirectory(root);
    if (handle === null) {
      yield* this.#file(root);
      return;
    }
    if (this.#job.gitignore)
      for (const { text, before } of gitignoresAbove(root)) this.#ignores.addAbove(text, before);
    yield* this.#below({ handle, path: root, relative: '', depth: 1 });
  }

  /** Counts an entry that cannot be read, unless it has vanished. Throws errors that end the walk. */
  failed(error: unknown): void {
    if (!isSystemError(error) || isSystemError(error, ...EXHAUSTED)) throw error;
    if (!isSystemError(error, ...VANISHED)) this.unreadable += 1;
  }

  *#file(root: BytePath): Generator<FoundEntry> {
    const at = root.lastIndexOf('/');
    using parent = DirectoryHandle.open(root.slice(0, at) || '/', 'locate', null);
    const name = root.slice(at + 1);
    if (!this.#names.isWanted(displayPath(name), false)) return;
    using entry = new OpenEntry(parent, name, {
      path: root,
      relative: displayPath(name),
      shown: this.#job.shown,
    });
    yield entry;
  }

  *#below(directory: Directory): Generator<FoundEntry> {
    const { handle, path, relative } = directory;
    using _ = this.#ignores.enter(this.#job.gitignore ? gitignoreIn(handle) : null, relative);
    for (;;) {
      this.#onStep();
      const names = namesIn(handle);
      if (names === null) return;
      for (const name of names.others.sort()) {
        const inner = joinText(relative, displayPath(name));
        if (!this.#isAskedFor(inner, false)) continue;
        yield* this.#entry(handle, name, joinBytes(path, name), inner);
      }
      for (const name of names.directories.sort()) yield* this.#directory(directory, name);
    }
  }

  *#directory(above: Directory, name: BytePath): Generator<FoundEntry> {
    const relative = joinText(above.relative, displayPath(name));
    const path = joinBytes(above.path, name);
    if (this.#names.isOut(relative, true)) return;
    if (this.#job.gitignore && this.#ignores.isIgnored(relative, true)) return;
    if (this.#names.isWanted(relative, true)) yield* this.#entry(above.handle, name, path, relative);
    if (above.depth === MAX_DEPTH) {
      this.unreadable += 1;
      return;
    }
    let handle: DirectoryHandle | null = null;
    try {
      handle = enter(above.handle, name, path);
    } catch (error) {
      this.failed(error);
    }
    if (handle === null) return;
    using _ = handle;
    yield* this.#below({ handle, path, relative, depth: above.depth + 1 });
  }

  *#entry(
    directory: DirectoryHandle,
    name: BytePath,
    path: BytePath,
    relative: string,
  ): Generator<FoundEntry> {
    let entry: OpenEntry | null = null;
    try {
      const { shown } = this.#job;
      entry = new OpenEntry(directory, name, {
        path,
        relative,
        shown: `${shown === '/' ? '' : shown}/${relative}`,
      });
    } catch (error) {
      this.failed(error);
    }
    if (entry === null) return;
    using _ = entry;
    yield entry;
  }

  #isAskedFor(relative: string, isDirectory: boolean): boolean {
    if (!this.#names.isWanted(relative, isDirectory)) return false;
    return !this.#job.gitignore || !this.#ignores.isIgnored(relative, isDirectory);
  }
}

/** Opens a directory. Returns null for a file. Throws the errors of open(2). */
function openIfDirectory(path: BytePath): DirectoryHandle | null {
  try {
    return DirectoryHandle.open(path, 'read', null);
  } catch (error) {
    if (isSystemError(error, 'ENOTDIR')) return null;
    throw error;
  }
}

/** Opens a directory below another one. Returns null for the mount point of a file system of the kernel. */
function enter(above: DirectoryHandle, name: BytePath, path: BytePath): DirectoryHandle | null {
  try {
    return above.below(name, { access: 'read', owner: null, crosses: false });
  } catch (error) {
    if (!isSystemError(error, 'EXDEV')) throw error;
    if (mountOf(readMounts(), path)?.kind === 'pseudo') return null;
    return above.below(name, { access: 'read', owner: null, crosses: true });
  }
}

/** Returns many of the next names, or null at the end. */
function namesIn(handle: DirectoryHandle): { directories: BytePath[]; others: BytePath[] } | null {
  const all = { directories: [] as BytePath[], others: [] as BytePath[] };
  while (all.directories.length + all.others.length < SORTED) {
    const some = handle.nextNames(true);
    if (some === null) break;
    all.directories.push(...some.directories);
    all.others.push(...some.others);
  }
  return all.directories.length + all.others.length > 0 ? all : null;
}

/** Returns the text of the .gitignore of a directory, or null if none can be read. */
function gitignoreIn(handle: DirectoryHandle): string | null {
  try {
    using entry = new OpenEntry(handle, '.gitignore', { path: '', relative: '', shown: '' });
    return entry.status.isFile() ? (entry.read(GITIGNORE_BYTES)?.toString() ?? null) : null;
  } catch (error) {
    if (!isSystemError(error)) throw error;
    return null;
  }
}

/**
 * Returns the .gitignore files above the root, up to the top of its repository, the nearest first. Each has the path from
 * there to the root. Returns none if the root is in no repository.
 */
function gitignoresAbove(root: BytePath): { readonly text: string; readonly before: string }[] {
  const found: { text: string; before: string }[] = [];
  try {
    for (let at = root; at !== ''; at = at.slice(0, at.lastIndexOf('/'))) {
      using handle = DirectoryHandle.open(at, 'locate', null);
      const text = at === root ? null : gitignoreIn(handle);
      if (text !== null) found.push({ text, before: displayPath(root.slice(at.length + 1)) });
      if (handle.kindOf('.git') !== null) return found;
    }
  } catch (error) {
    if (!isSystemError(error)) throw error;
  }
  return [];
}

function joinText(directory: string, name: string): string {
  return directory === '' ? name : `${directory}/${name}`;
}
