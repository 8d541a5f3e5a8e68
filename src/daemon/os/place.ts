import { closeSync, constants, type Stats } from 'node:fs';
import { lstat, readlink, rename, stat, unlink } from 'node:fs/promises';
import { isSystemError } from '../../base/errors.ts';
import { type BytePath, pathBuffer } from './byte-path.ts';
import { type NativePlace, native } from './native.ts';
import { OpenFile } from './open-file.ts';
import type { User } from './users.ts';

/** Whose a new file or directory is. */
type Owner = Pick<User, 'uid' | 'gid'>;

/** O_TMPFILE of asm-generic/fcntl.h, which Node does not name; O_DIRECTORY differs between architectures. */
const O_TMPFILE = 0o20000000 | constants.O_DIRECTORY;

/** EISDIR: kernels and file systems that take O_TMPFILE for a plain open of a directory. */
const WITHOUT_UNNAMED = ['ENOTSUP', 'EOPNOTSUPP', 'EISDIR', 'EINVAL', 'EROFS', 'EPERM'];

/**
 * A name in a directory that is held by a descriptor: whoever exchanges a part of the path leads nobody elsewhere. Where
 * a link of a user was followed, his rights hold. See `native.openPlace`; methods throw the system calls' errors.
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

  /** Walks along the absolute `path`; `follow`: also its last part, when that is a link. */
  static async open(path: string, follow: boolean): Promise<Place> {
    return new Place(path, follow, await native.openPlace(Buffer.from(path), follow));
  }

  /** The directory, open for its path alone. */
  get directory(): number {
    return this.#at.directory;
  }

  get name(): BytePath {
    return this.#at.name;
  }

  /** Whether directories on the way to the name are missing. */
  get isBelowMissing(): boolean {
    return this.#at.missing !== '';
  }

  /** The user whose rights hold here; null: the daemon's. */
  get owner(): number | null {
    return this.#at.owner;
  }

  /** By which this process reaches the name, for calls that do not follow it. */
  get path(): Buffer {
    return this.beside(this.name);
  }

  /** The same for another name in the directory. */
  beside(name: BytePath): Buffer {
    return pathBuffer(`/proc/self/fd/${this.directory}/${name}`);
  }

  /** Where the directory is now, as text. */
  async directoryPath(): Promise<string> {
    return readlink(`/proc/self/fd/${this.directory}`);
  }

  /** Null when there is nothing. */
  async status(): Promise<Stats | null> {
    if (this.isBelowMissing) return null;
    try {
      return await (this.#at.isMagic ? stat(this.path) : lstat(this.path));
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return null;
      throw error;
    }
  }

  /** Opens the name, never a link; what is made gets mode 0666 less the umask. */
  async openFile(flags: number, name = this.name): Promise<OpenFile> {
    const noFollow = this.#at.isMagic ? 0 : constants.O_NOFOLLOW;
    return new OpenFile(await native.openAt(this.directory, pathBuffer(name), flags | noFollow, this.owner));
  }

  /**
   * Opens a new file without a name in the directory's file system, for reading and writing, mode 0666 less the umask; it
   * is gone when closed without `publish`, which asks whether it may have one. Null where the file system cannot do that.
   * Source: open(2), O_TMPFILE.
   */
  async openUnnamed(): Promise<OpenFile | null> {
    try {
      const flags = constants.O_RDWR | O_TMPFILE;
      return new OpenFile(await native.openAt(this.directory, DOT, flags, null));
    } catch (error) {
      if (isSystemError(error, ...WITHOUT_UNNAMED)) return null;
      throw error;
    }
  }

  /** Gives a file without a name this one, or another in the directory. Throws EEXIST when it is taken. */
  async publish(file: OpenFile, { uid, gid }: Owner, name = this.name): Promise<void> {
    await this.assertMayChange();
    await native.publishFile(file.fd, this.directory, pathBuffer(name), uid, gid);
  }

  /** Renames another name of the directory to this one, in place of what has it. */
  async replaceBy(name: BytePath): Promise<void> {
    await rename(this.beside(name), this.path);
  }

  async unlink(name = this.name): Promise<void> {
    await unlink(this.beside(name));
  }

  /** Makes the missing directories on the way, with mode 0755 and the user's; what exists stays as it is. */
  async makeParents(user: Owner): Promise<void> {
    if (this.isBelowMissing) await this.#enter(this.#at.missing, user);
  }

  /** Makes the name a directory, and its missing parents; false when it is one. ENOTDIR: it is something else. */
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

  /** Throws EACCES or EPERM when the user whose rights hold here may not give or take the name away. */
  async assertMayChange(): Promise<void> {
    if (this.owner !== null) await native.assertMayChange(this.directory, pathBuffer(this.name), this.owner);
  }

  /**
   * Throws EACCES or EPERM when the user whose rights hold here may neither write to the regular file nor make one: before
   * its content is sent.
   */
  async assertMayWrite(status: Stats | null): Promise<void> {
    if (this.owner === null || this.isBelowMissing) return;
    if (status) await (await this.openFile(constants.O_WRONLY | constants.O_NONBLOCK)).close();
    else await this.assertMayChange();
  }

  /** Walks once more: the directory has been removed meanwhile. */
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
