import { closeSync, constants, type Stats } from 'node:fs';
import { lstat, readlink, rename, stat, unlink } from 'node:fs/promises';
import { isSystemError } from '../../base/errors.ts';
import { type BytePath, pathBuffer } from './byte-path.ts';
import { type NativePlace, native } from './native.ts';
import { OpenFile } from './open-file.ts';
import type { User } from './users.ts';

/** Owner of a new file or directory. */
type Owner = Pick<User, 'uid' | 'gid'>;

/** O_TMPFILE of asm-generic/fcntl.h, which Node does not name; O_DIRECTORY differs between architectures. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;

/** Errors where O_TMPFILE is not supported. EISDIR: it was taken for a plain open of a directory; EACCES: /proc/sys. */
const NO_TMPFILE = ['EACCES', 'ENOTSUP', 'EOPNOTSUPP', 'EISDIR', 'EINVAL', 'EROFS', 'EPERM'];

/**
 * A name in an open directory. Replacing a part of the path afterwards does not redirect operations on it. If the path
 * led through a symbolic link owned by another user than root, operations have that user's permissions. See
 * `native.openPlace`; methods throw the system calls' errors.
 */
export class Place implements Disposable {
  readonly #path: string;
  readonly #follow: boolean;
  #at: NativePlace;

  private constructor(path: string, follow: boolean, at: NativePlace) {
    this.#path = path;
    this.#follow = follow;
    this.#at = at;
  }

  /** Resolves the absolute `path`; `follow`: including a symbolic link as its last part. */
  static async open(path: string, follow: boolean): Promise<Place> {
    return new Place(path, follow, await native.openPlace(Buffer.from(path), follow));
  }

  /** The path that was resolved, for errors. */
  get requested(): string {
    return this.#path;
  }

  /** Descriptor of the directory, opened with O_PATH. */
  get directory(): number {
    return this.#at.directory;
  }

  get name(): BytePath {
    return this.#at.name;
  }

  /** Whether parent directories of the name are missing. */
  get isBelowMissing(): boolean {
    return this.#at.missing !== '';
  }

  /**
   * The user whose permissions apply, the owner of a symbolic link on the path; null: the daemon's permissions apply.
   */
  get owner(): number | null {
    return this.#at.owner;
  }

  /** Path of the name through the descriptor, for calls that do not follow symbolic links. */
  get path(): Buffer {
    return this.beside(this.name);
  }

  /** The same for `name` in the directory. */
  beside(name: BytePath): Buffer {
    return pathBuffer(`/proc/self/fd/${this.directory}/${name}`);
  }

  /** The directory's current path. */
  async directoryPath(): Promise<string> {
    return readlink(`/proc/self/fd/${this.directory}`);
  }

  /** Status of the entry; null when it does not exist. */
  async status(): Promise<Stats | null> {
    if (this.isBelowMissing) return null;
    try {
      return await (this.#at.isMagic ? stat(this.path) : lstat(this.path));
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return null;
      throw error;
    }
  }

  /** Opens the name without following a symbolic link; a new file has mode 0666 & ~umask. */
  async openFile(flags: number, name = this.name): Promise<OpenFile> {
    const noFollow = this.#at.isMagic ? 0 : constants.O_NOFOLLOW;
    return new OpenFile(await native.openAt(this.directory, pathBuffer(name), flags | noFollow, this.owner));
  }

  /**
   * Opens an unnamed temporary file (O_TMPFILE) on the directory's file system for reading and writing, with mode
   * 0666 & ~umask. `publish` checks permissions and links it; closing it without that deletes it. Null where the file
   * system does not support it. Source: open(2).
   */
  async openUnnamed(): Promise<OpenFile | null> {
    try {
      const flags = constants.O_RDWR | O_TMPFILE;
      return new OpenFile(await native.openAt(this.directory, DOT, flags, null));
    } catch (error) {
      if (isSystemError(error, ...NO_TMPFILE)) return null;
      throw error;
    }
  }

  /** Links an unnamed file as `name` and sets its owner. Throws EEXIST when the name exists. */
  async publish(file: OpenFile, { uid, gid }: Owner, name = this.name): Promise<void> {
    await this.assertMayChange();
    await native.publishFile(file.fd, this.directory, pathBuffer(name), uid, gid);
  }

  /** Renames `name` of the same directory to this name, replacing what is there. */
  async replaceBy(name: BytePath): Promise<void> {
    await rename(this.beside(name), this.path);
  }

  async unlink(name = this.name): Promise<void> {
    await unlink(this.beside(name));
  }

  /** Creates missing parent directories with mode 0755 and owner `user`; existing ones are not changed. */
  async makeParents(user: Owner): Promise<void> {
    if (this.isBelowMissing) await this.#enter(this.#at.missing, user);
  }

  /** Creates the directory and its missing parents; false when it exists. Throws ENOTDIR when it is not a directory. */
  async makeDirectory(user: Owner): Promise<boolean> {
    const { missing, name } = this.#at;
    return this.#enter(missing === '' ? name : `${missing}/${name}`, user);
  }

  async #enter(path: BytePath, { uid, gid }: Owner): Promise<boolean> {
    const { directory, isNew } = await native.makeDirectories(
      this.directory,
      pathBuffer(path),
      uid,
      gid,
      this.owner,
    );
    closeSync(this.directory);
    this.#at = { ...this.#at, directory, missing: '' };
    return isNew;
  }

  /** Throws EACCES or EPERM when `owner` may not create or remove the name. */
  async assertMayChange(): Promise<void> {
    if (this.owner !== null) await native.assertMayChange(this.directory, pathBuffer(this.name), this.owner);
  }

  /** Throws EACCES when `owner` may not move the directory of this name into another one. Source: rename(2). */
  async assertMayMove(): Promise<void> {
    if (this.owner === null) return;
    await using moved = await this.openFile(constants.O_RDONLY | constants.O_DIRECTORY);
    await native.assertMayChange(moved.fd, Buffer.alloc(0), this.owner);
  }

  /**
   * Throws EACCES or EPERM when `owner` may not write to the existing regular file `status`, or create one if null. To
   * be called before content is received.
   */
  async assertMayWrite(status: Stats | null): Promise<void> {
    if (this.owner === null || this.isBelowMissing) return;
    if (status) await (await this.openFile(constants.O_WRONLY | constants.O_NONBLOCK)).close();
    else await this.assertMayChange();
  }

  /** Resolves the path again, after the directory has been removed or the name became a symbolic link. */
  async renew(): Promise<void> {
    const at = await native.openPlace(Buffer.from(this.#path), this.#follow);
    closeSync(this.directory);
    this.#at = at;
  }

  [Symbol.dispose](): void {
    closeSync(this.directory);
  }
}

const DOT = Buffer.from('.');
