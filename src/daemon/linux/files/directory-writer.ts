import { closeSync, constants } from 'node:fs';
import { chmod, chown, lstat, rename, symlink, unlink } from 'node:fs/promises';
import process from 'node:process';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { locking } from '../lanes/lane.ts';
import { type BytePath, pathBuffer } from '../paths/byte-path.ts';
import { O_PATH, O_TMPFILE } from '../paths/open-flags.ts';
import { native } from '../system/native.ts';
import { uniqueId } from '../system/unique-id.ts';
import type { OpenFile } from './open-file.ts';
import type { Owner } from './place.ts';
import { writeTimes } from './times.ts';

/** open(2) fails like this where O_TMPFILE is not supported. EISDIR means that it was taken for a plain open. */
const NO_TMPFILE = ['ENOTSUP', 'EOPNOTSUPP', 'EISDIR', 'EINVAL'];

/**
 * Creates entries by name in an open directory, with the permissions of `owner` (see `native.openPlace`). It follows no
 * symbolic link. Its methods throw the system calls' errors.
 */
export class DirectoryWriter implements AsyncDisposable {
  readonly #file: OpenFile;
  readonly #owner: number | null;

  /** `file` must be open with O_PATH. */
  constructor(file: OpenFile, owner: number | null) {
    this.#file = file;
    this.#owner = owner;
  }

  /** Creates a directory with mode 0755, or opens the one that exists. Throws ENOTDIR if the name is anything else. */
  async makeDirectory(
    name: BytePath,
    { uid, gid }: Owner,
  ): Promise<{ readonly directory: DirectoryWriter; readonly isNew: boolean }> {
    const { value, lane } = await this.#file.find(
      () => native.makeDirectories(this.#file.fd, pathBuffer(name), uid, gid, this.#owner),
      (late) => closeSync(late.directory),
    );
    const directory = new DirectoryWriter(this.#file.own(value.directory, lane), this.#owner);
    return { directory, isNew: value.isNew };
  }

  /** Creates a file that has no name yet, or a temporary one where O_TMPFILE is not supported. */
  async createFile(): Promise<NewFile> {
    try {
      return new NewFile(this, await this.#open('.', constants.O_RDWR | O_TMPFILE), null);
    } catch (error) {
      if (!isSystemError(error, ...NO_TMPFILE)) throw error;
      await this.#assertMayChange('.');
      const temporary = temporaryName();
      const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
      return new NewFile(this, await this.#open(temporary, flags), temporary);
    }
  }

  /** Gives this name and an owner to an open file, which has no name or only other names. */
  async nameFile(file: OpenFile, name: BytePath, { uid, gid }: Owner): Promise<void> {
    await this.#replacing(name, async (free) => {
      await this.#run(() =>
        file.during(native.publishFile(file.fd, this.#file.fd, pathBuffer(free), uid, gid)),
      );
      return file;
    });
  }

  /** Gives an open file another name, and keeps its owner and times. */
  async linkFile(file: OpenFile, name: BytePath): Promise<void> {
    const { uid, gid, atimeNs, mtimeNs } = await file.exactStat();
    await this.nameFile(file, name, { uid: Number(uid), gid: Number(gid) });
    await file.run(() => writeTimes(file.fd, atimeNs, mtimeNs));
  }

  /** Creates a symbolic link, which replaces any file of this name. `modified` is in nanoseconds since the epoch. */
  async makeLink(name: BytePath, text: BytePath, owner: Owner, modified: bigint): Promise<void> {
    await using made = await this.#replacing(name, async (free) => {
      await this.#run(() => symlink(pathBuffer(text), this.#path(free)));
      const made = await this.#open(free, O_PATH | constants.O_NOFOLLOW);
      try {
        await giveLink(made, text, owner);
        return made;
      } catch (error) {
        await made.close();
        throw error;
      }
    });
    await made.run(() => writeTimes(made.fd, modified, modified));
  }

  /** Opens a regular file to give it another name. Throws ELOOP for a symbolic link. */
  async openToLink(name: BytePath): Promise<OpenFile> {
    return this.#open(
      name,
      constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK | constants.O_NOCTTY,
    );
  }

  /** Renames a temporary name of `file` to `name`. Throws `aborted` when another process had put another file there. */
  async rename(temporary: BytePath, name: BytePath, file: OpenFile): Promise<void> {
    await this.#run(() => rename(this.#path(temporary), this.#path(name)), true);
    const named = await this.#run(() => lstat(this.#path(name), { bigint: true }));
    const meant = await file.exactStat();
    if (meant.ino !== named.ino || meant.dev !== named.dev) throw replaced('a temporary file');
  }

  async unlink(name: BytePath): Promise<void> {
    await this.#run(() => unlink(this.#path(name)), true);
  }

  /** Opens the directory of this name, which must not be a symbolic link. */
  async openDirectory(name: BytePath): Promise<DirectoryWriter> {
    const flags = O_PATH | constants.O_DIRECTORY | constants.O_NOFOLLOW;
    return new DirectoryWriter(await this.#open(name, flags), this.#owner);
  }

  /**
   * Sets the mode of a directory that `makeDirectory` has just made for `uid`. Throws `aborted` when the directory is
   * not as it was made, because another process may have exchanged it before it was opened.
   */
  async setFirstMode(mode: number, uid: number): Promise<void> {
    await using file = await this.#open('.', constants.O_RDONLY | constants.O_DIRECTORY);
    const status = await file.exactStat();
    const isAsMade = (Number(status.mode) & 0o7777) === 0o755 && Number(status.uid) === (this.#owner ?? uid);
    if (!isAsMade || (await file.run(() => native.readNext(file.fd, null))).length > 0)
      throw replaced('a new directory');
    await file.chmod(mode);
  }

  async setMode(mode: number): Promise<void> {
    await this.#run(() => chmod(`/proc/self/fd/${this.#file.fd}`, mode));
  }

  async setAttribute(name: string, value: Buffer): Promise<void> {
    await using file = await this.#open('.', constants.O_RDONLY | constants.O_DIRECTORY);
    await file.run(() => native.writeAttribute(file.fd, pathBuffer(name), value));
  }

  async setTime(time: bigint): Promise<void> {
    await this.#run(() => writeTimes(this.#file.fd, time, time));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
  }

  /** Creates an entry as `name`. If that exists, the entry gets a temporary name, and then replaces it. */
  async #replacing(name: BytePath, create: (free: BytePath) => Promise<OpenFile>): Promise<OpenFile> {
    await this.#assertMayChange(name);
    try {
      return await create(name);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
    const temporary = temporaryName();
    const made = await create(temporary);
    try {
      await this.rename(temporary, name, made);
      return made;
    } catch (error) {
      await this.unlink(temporary).catch(() => {});
      throw error;
    }
  }

  async #assertMayChange(name: BytePath): Promise<void> {
    const owner = this.#owner;
    if (owner !== null) await this.#run(() => native.assertMayChange(this.#file.fd, pathBuffer(name), owner));
  }

  async #open(name: BytePath, flags: number): Promise<OpenFile> {
    const open = () => native.openAt(this.#file.fd, pathBuffer(name), flags, this.#owner);
    return this.#file.openOther(open, flags);
  }

  /** Returns the path of a name through the descriptor, for calls that do not follow symbolic links. */
  #path(name: BytePath): Buffer {
    return pathBuffer(`/proc/self/fd/${this.#file.fd}/${name}`);
  }

  /** `isLocking` says that the job waits for the lock of a file, which others may hold. */
  #run<T>(job: () => Promise<T>, isLocking = false): Promise<T> {
    return this.#file.run(job, {}, isLocking ? locking(this.#file.lane) : this.#file.lane);
  }
}

/** A new file, which other processes cannot open yet, or at least not by its final name. */
export class NewFile implements AsyncDisposable {
  readonly file: OpenFile;
  readonly #directory: DirectoryWriter;
  #temporary: BytePath | null;

  constructor(directory: DirectoryWriter, file: OpenFile, temporary: BytePath | null) {
    this.#directory = directory;
    this.file = file;
    this.#temporary = temporary;
  }

  /** Gives the file its owner and its name, and replaces any file of this name. Throws EISDIR for a directory. */
  async publish(name: BytePath, owner: Owner): Promise<void> {
    if (this.#temporary === null) return this.#directory.nameFile(this.file, name, owner);
    await this.file.chown(owner.uid, owner.gid);
    await this.#directory.rename(this.#temporary, name, this.file);
    this.#temporary = null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.file.close();
    if (this.#temporary !== null) await this.#directory.unlink(this.#temporary).catch(() => {});
  }
}

/** Gives a symbolic link of ours an owner. The directory's owner may have exchanged the link, so it is checked first. */
async function giveLink(made: OpenFile, text: BytePath, { uid, gid }: Owner): Promise<void> {
  const status = await made.exactStat();
  if (Number(status.uid) === uid && Number(status.gid) === gid) return;
  const isOurs = status.isSymbolicLink() && Number(status.uid) === process.geteuid?.() && status.nlink === 1n;
  if (!isOurs || !pathBuffer(text).equals(await made.run(() => native.readLink(made.fd))))
    throw replaced('a new symbolic link');
  // The path leads to the link itself, because it is open with O_PATH.
  await made.run(() => chown(`/proc/self/fd/${made.fd}`, uid, gid));
}

/** Returns a name that does not contain the file's name, so that it never exceeds NAME_MAX. */
export function temporaryName(): BytePath {
  return `.envd-${uniqueId()}`;
}

function replaced(what: string): EnvdError {
  return new EnvdError('aborted', `${what} was replaced by another process after it was made`);
}
