import type { EntryMessage } from '../wire/messages.ts';

/** An entry of a directory. */
export interface FileEntry {
  readonly name: string;
  readonly path: string;
  /** That of a link's target. */
  readonly kind: 'file' | 'directory' | 'other';
  readonly isLink: boolean;
  readonly size: number;
  readonly modified: Date | null;
  readonly permissions: string;
  readonly owner: string;
}

/** An entry as a daemon tells it, with the directory that was listed. */
export function entryOf(directory: string, message: EntryMessage): FileEntry {
  const { name = '', type, size, permissions = '', owner = '', modifiedTime, symlinkTarget } = message;
  const modified = new Date(modifiedTime ?? '');
  return {
    ...{ name, permissions, owner, path: joined(directory, name) },
    kind: type === 'FILE_TYPE_DIRECTORY' ? 'directory' : type === 'FILE_TYPE_FILE' ? 'file' : 'other',
    isLink: symlinkTarget !== undefined,
    size: Number(size ?? 0),
    modified: Number.isNaN(modified.getTime()) ? null : modified,
  };
}

export function joined(directory: string, name: string): string {
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}

/** The last part of a path. */
export function fileNameOf(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** The directory that a path is in; that of `/` is `/`. */
export function parentOf(path: string): string {
  const at = path.replace(/\/+$/, '').lastIndexOf('/');
  return at <= 0 ? '/' : path.slice(0, at);
}

/** The directories that lead to a path, the root first: `/`, `/home`, `/home/user`. */
export function directoriesTo(path: string): string[] {
  const names = path.split('/').filter((name) => name !== '');
  return ['/', ...names.map((_, index) => `/${names.slice(0, index + 1).join('/')}`)];
}

/** Directories first, each kind by name. */
export function byName(one: FileEntry, other: FileEntry): number {
  const [first, second] = [one.kind === 'directory' ? 0 : 1, other.kind === 'directory' ? 0 : 1];
  return first - second || (one.name < other.name ? -1 : Number(one.name > other.name));
}
