import { constants } from 'node:fs';
import { EnvdError } from '../../../../base/errors.ts';
import { copyContent } from '../../../linux/files/copy-content.ts';
import { temporaryName } from '../../../linux/files/directory-writer.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import { FILE_MODE, type PathHandle } from '../../../linux/files/place.ts';
import { writeFully } from '../../../linux/files/write-fully.ts';
import type { User } from '../../../linux/system/users.ts';

/**
 * Content in an unnamed temporary file (O_TMPFILE). Other processes cannot open it, and the kernel deletes it
 * when the descriptor is closed, also after a crash. `publish` of commit.ts and `replaceByStaged` move or write it to
 * its destination.
 */
export class StagedFile implements AsyncDisposable {
  readonly file: OpenFile;
  readonly #place: PathHandle;
  /** Its temporary name in the place's directory, until it is renamed. */
  #temporary: string | null;
  /** A file with a temporary name gets this mode at last, because others see it from the start. */
  #mode = FILE_MODE;
  #size = 0;

  private constructor(file: OpenFile, place: PathHandle, temporary: string | null) {
    this.file = file;
    this.#place = place;
    this.#temporary = temporary;
  }

  /**
   * Opens an unnamed file in the destination's directory or its nearest existing ancestor. Returns null where the file
   * system does not support O_TMPFILE.
   */
  static async open(place: PathHandle): Promise<StagedFile | null> {
    const file = await place.openUnnamed();
    return file && new StagedFile(file, place, null);
  }

  /** Opens a file under a temporary name, for file systems without O_TMPFILE. */
  static async openNamed(place: PathHandle, user: User): Promise<StagedFile> {
    await place.makeParents(user);
    const temporary = temporaryName();
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;
    return new StagedFile(await place.openFile(flags, temporary), place, temporary);
  }

  get size(): number {
    return this.#size;
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    await writeFully(this.file, batch, this.#size, signal);
    for (const piece of batch) this.#size += piece.length;
  }

  /** Appends the whole content of an open file. */
  async append(source: OpenFile): Promise<void> {
    this.#size += await copyContent(source, this.file, this.#size);
  }

  /** Sets the mode that the published file has. */
  async setMode(mode: number): Promise<void> {
    this.#mode = mode;
    if (!this.#temporary) await this.file.chmod(mode);
  }

  /** Reads the whole content into memory. */
  async read(): Promise<Buffer> {
    const content = Buffer.alloc(this.#size);
    return content.subarray(0, await this.file.read(content, this.#size, 0));
  }

  /** Writes the content to an open file, from `offset` on. */
  async copyTo(target: OpenFile, offset: number): Promise<void> {
    await copyContent(this.file, target, offset, this.#size);
  }

  /** Returns a copy whose content begins at `offset`, after a hole. */
  async shiftedBy(offset: number, user: User): Promise<StagedFile> {
    const copy = this.#temporary
      ? await StagedFile.openNamed(this.#place, user)
      : await StagedFile.open(this.#place);
    if (!copy) throw new Error('a file system has lost O_TMPFILE');
    try {
      await this.copyTo(copy.file, offset);
      return copy;
    } catch (error) {
      await copy[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Links the file at the destination, owned by `user`. Throws EEXIST when the name exists. */
  async publish(user: User): Promise<void> {
    if (this.#temporary) await this.replace(user);
    else await this.#place.publish(this.file, user);
  }

  /** Replaces the destination by the file. Throws `aborted` when another process has replaced the temporary name. */
  async replace(user: User): Promise<void> {
    if (this.#temporary) {
      await this.file.chown(user.uid, user.gid);
      await this.file.chmod(this.#mode);
    } else {
      const temporary = temporaryName();
      await this.#place.publish(this.file, user, temporary);
      this.#temporary = temporary;
    }
    await this.#place.assertMayChange();
    await this.#place.replaceBy(this.#temporary);
    this.#temporary = null;
    const [own, named] = await Promise.all([this.file.stat(), this.#place.status()]);
    if (named?.ino !== own.ino) {
      throw new EnvdError(
        'aborted',
        `temporary file was replaced by another process before it was renamed: '${this.#place.requested}'`,
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.file.close();
    if (this.#temporary) await this.#place.unlink(this.#temporary).catch(() => {});
  }
}
