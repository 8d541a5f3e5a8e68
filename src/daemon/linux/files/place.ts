import { closeSync, constants, type Stats, type StatsFs } from 'node:fs';
import { lstat, readlink, rename, stat, statfs, unlink } from 'node:fs/promises';
import { isSystemError } from '../../../base/errors.ts';
import { both, type Lane, laneOf, locking, openedLane } from '../lanes/lane.ts';
import type { Lanes, RunOptions } from '../lanes/lanes.ts';
import { untilReleased } from '../lanes/leases.ts';
import { type BytePath, bytePath, pathBuffer } from '../paths/byte-path.ts';
import { decodeName, encodeName } from '../paths/names.ts';
import { O_PATH, O_TMPFILE } from '../paths/open-flags.ts';
import { MissingParent } from '../system/errno.ts';
import { type NativePlace, native } from '../system/native.ts';
import type { User } from '../system/users.ts';
import { OpenFile } from './open-file.ts';

/** Identifies the owner of a file or directory. */
export type Owner = Pick<User, 'uid' | 'gid'>;

/** A new file gets this mode when it is complete, unless the client asks for another one. */
export const FILE_MODE = 0o644;

/**
 * open(2) fails with one of these errors where O_TMPFILE is not supported. With EISDIR it was taken for the open of a
 * directory; EACCES comes from /proc/sys.
 */
const NO_TMPFILE = ['EACCES', 'ENOTSUP', 'EOPNOTSUPP', 'EISDIR', 'EINVAL', 'EROFS', 'EPERM'];

/**
 * A name in an open directory. Operations on it are not redirected when somebody replaces a part of the path
 * afterwards. If the path led through a symbolic link that another user than root owns, operations have that user's
 * permissions. See `native.openPlace`. Methods throw the system calls' errors, and `NoAnswer`.
 */
export class PathHandle implements Disposable {
  readonly #path: string | Buffer;
  readonly #follow: boolean;
  readonly #lanes: Lanes;
  #at: NativePlace;
  #lane: Lane;
  /** Counts the calls in progress, which use the directory. */
  #underWay = 0;
  #isDisposed = false;

  private constructor(path: string | Buffer, follow: boolean, lanes: Lanes, [at, lane]: [NativePlace, Lane]) {
    this.#path = path;
    this.#follow = follow;
    this.#lanes = lanes;
    this.#at = at;
    this.#lane = lane;
  }

  /** Resolves the absolute `path`. If `follow` is true, it follows a symbolic link as the last part, too. */
  static async open(path: string | Buffer, follow: boolean, lanes: Lanes): Promise<PathHandle> {
    return new PathHandle(path, follow, lanes, await find(path, follow, lanes));
  }

  /** Calls on the name wait in this lane, because it may be on a mount that does not answer. */
  get lane(): Lane {
    return this.#lane;
  }

  /** Returns the path that was resolved, for errors. */
  get requested(): string {
    return typeof this.#path === 'string' ? this.#path : encodeName(this.#path);
  }

  /** Returns the descriptor of the directory, which is open with O_PATH. */
  get directory(): number {
    return this.#at.directory;
  }

  get name(): BytePath {
    return this.#at.name;
  }

  /** Tells whether parent directories of the name are missing. */
  get isBelowMissing(): boolean {
    return this.#at.missing !== '';
  }

  /** Returns the owner of a symbolic link on the path, whose permissions apply. Null means the daemon's permissions. */
  get owner(): number | null {
    return this.#at.owner;
  }

  /** Returns the path of the name through the descriptor, for calls that do not follow symbolic links. */
  get path(): Buffer {
    return this.pathTo(this.name);
  }

  /** Returns the path of another name in the directory, in the same form. */
  pathTo(name: BytePath): Buffer {
    return pathBuffer(`/proc/self/fd/${this.directory}/${name}`);
  }

  /** Returns the directory's current path. */
  async directoryPath(): Promise<BytePath> {
    return bytePath(await readlink(`/proc/self/fd/${this.directory}`, 'buffer'));
  }

  /** Returns the status of the entry, or null when it does not exist. */
  async status(): Promise<Stats | null> {
    if (this.isBelowMissing) return null;
    try {
      return await this.run(() => (this.#at.isMagic ? stat(this.path) : lstat(this.path)));
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return null;
      throw error;
    }
  }

  directoryStatus(): Promise<Stats> {
    return this.run(() => lstat(this.pathTo('.')));
  }

  statfs(): Promise<StatsFs> {
    return this.run(() => statfs(this.pathTo('.')));
  }

  /**
   * Opens the name without following a symbolic link. A new file has mode 0600. While another process holds a lease on
   * the file (fcntl(2), F_SETLEASE), an open with O_NONBLOCK is repeated. Throws EAGAIN if the lease stays.
   */
  async openFile(flags: number, name = this.name): Promise<OpenFile> {
    if (this.isBelowMissing) throw new MissingParent('ENOENT: no such file or directory, open');
    const noFollow = this.#at.isMagic ? 0 : constants.O_NOFOLLOW;
    // The lock of an inode protects a file that is written to. Nobody else can lock a new file.
    const isNew = (flags & constants.O_EXCL) !== 0;
    const lane = isNew || (flags & WRITING) === 0 ? this.#lane : locking(this.#lane);
    return untilReleased(this.#lanes.limitMs, () =>
      this.#open(pathBuffer(name), flags | noFollow, this.owner, lane),
    );
  }

  /** Opens a name. It removes a file that is created after its caller has given up. */
  async #open(name: Buffer, flags: number, owner: number | null, lane: Lane): Promise<OpenFile> {
    const own = openedLane(lane, flags);
    const owned = (descriptor: number) => new OpenFile(descriptor, this.#lanes, own);
    let isGivenUp = false;
    const open = async () => {
      const descriptor = await native.openAt(this.directory, name, flags, owner);
      if (isGivenUp && flags & constants.O_EXCL) await unlink(this.pathTo(bytePath(name))).catch(() => {});
      return descriptor;
    };
    try {
      return owned(await this.run(open, { discard: (late) => owned(late).discard() }, lane));
    } catch (error) {
      isGivenUp = true;
      throw error;
    }
  }

  /** Runs a job that uses the directory, which stays open until the job ends. */
  run<T>(job: () => Promise<T>, options?: RunOptions<T>, lane = this.#lane): Promise<T> {
    return this.#lanes.run(lane, () => this.#during(job), options);
  }

  async #during<T>(job: () => Promise<T>): Promise<T> {
    this.#underWay++;
    try {
      return await job();
    } finally {
      this.#underWay--;
      if (this.#isDisposed) this[Symbol.dispose]();
    }
  }

  /**
   * Opens an unnamed temporary file (O_TMPFILE) on the directory's file system for reading and writing, with mode 0666
   * & ~umask. `publish` checks permissions and links the file. If it is closed without that, the kernel deletes it.
   * Returns null where the file system does not support it. Source: open(2).
   */
  async openUnnamed(): Promise<OpenFile | null> {
    try {
      return await this.#open(DOT, constants.O_RDWR | O_TMPFILE, null, this.#lane);
    } catch (error) {
      if (isSystemError(error, ...NO_TMPFILE)) return null;
      throw error;
    }
  }

  /** Links an unnamed file as `name` and sets its owner. Throws EEXIST when the name exists. */
  async publish(file: OpenFile, { uid, gid }: Owner, name = this.name): Promise<void> {
    await this.assertMayChange();
    await this.run(() =>
      file.during(native.publishFile(file.fd, this.directory, pathBuffer(name), uid, gid)),
    );
  }

  /** Renames `name` of the same directory to this name, and replaces any file of this name. */
  async replaceBy(name: BytePath): Promise<void> {
    await this.run(() => rename(this.pathTo(name), this.path), {}, locking(this.#lane));
  }

  /** Renames `source` to this name, and replaces any file of this name. */
  async moveHere(source: PathHandle): Promise<void> {
    const lane = locking(both(this.#lane, source.lane));
    await this.run(() => source.#during(() => rename(source.path, this.path)), {}, lane);
  }

  async unlink(name = this.name): Promise<void> {
    await this.run(() => unlink(this.pathTo(name)), {}, locking(this.#lane));
  }

  /** Creates missing parent directories with mode 0755 and owner `user`. Existing ones are not changed. */
  async makeParents(user: Owner): Promise<void> {
    if (this.isBelowMissing) await this.#enter(this.#at.missing, user);
  }

  /** Creates the directory and its parents. Returns false when it exists. Throws ENOTDIR when it is something else. */
  async makeDirectory(user: Owner): Promise<boolean> {
    const { missing, name } = this.#at;
    return this.#enter(missing === '' ? name : `${missing}/${name}`, user);
  }

  async #enter(path: BytePath, { uid, gid }: Owner): Promise<boolean> {
    const { directory, isNew } = await this.run(
      () => native.makeDirectories(this.directory, pathBuffer(path), uid, gid, this.owner),
      { discard: (late) => closeSync(late.directory) },
    );
    closeSync(this.directory);
    this.#at = { ...this.#at, directory, missing: '' };
    return isNew;
  }

  /** Throws EACCES or EPERM when `owner` may not create or remove the name. */
  async assertMayChange(): Promise<void> {
    const { owner } = this;
    if (owner === null) return;
    await this.run(() => native.assertMayChange(this.directory, pathBuffer(this.name), owner));
  }

  /** Throws EACCES when `owner` may not move the directory of this name into another one. Source: rename(2). */
  async assertMayMove(): Promise<void> {
    const { owner } = this;
    if (owner === null) return;
    await using moved = await this.openFile(O_PATH | constants.O_DIRECTORY);
    await moved.run(() => native.assertMayChange(moved.fd, Buffer.alloc(0), owner));
  }

  /**
   * Throws EACCES or EPERM when `owner` may not write to the existing regular file, or, if `status` is null, may not
   * create one. Call it before content is received.
   */
  async assertMayWrite(status: Stats | null): Promise<void> {
    if (this.owner === null || this.isBelowMissing) return;
    if (status) await (await this.openFile(constants.O_WRONLY | constants.O_NONBLOCK)).close();
    else await this.assertMayChange();
  }

  /** Resolves the path again, after the directory was removed or the name became a symbolic link. */
  async renew(): Promise<void> {
    const [at, lane] = await find(this.#path, this.#follow, this.#lanes);
    closeSync(this.directory);
    this.#at = at;
    this.#lane = lane;
  }

  /** Closes the directory as soon as no call uses it. With O_PATH, close(2) asks no server. */
  [Symbol.dispose](): void {
    this.#isDisposed = true;
    if (this.#underWay === 0) closeSync(this.directory);
  }
}

const DOT = Buffer.from('.');
const WRITING = constants.O_WRONLY | constants.O_RDWR;

async function find(path: string | Buffer, follow: boolean, lanes: Lanes): Promise<[NativePlace, Lane]> {
  const bytes = typeof path === 'string' ? decodeName(path) : path;
  const { value, lane } = await lanes.find(() => native.openPlace(bytes, follow), {
    base: laneOf(bytePath(bytes)),
    discard: (late) => closeSync(late.directory),
  });
  return [value, lane];
}
