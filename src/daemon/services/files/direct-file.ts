import { constants } from 'node:fs';
import { isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from '../../os/open-file.ts';
import type { Place } from '../../os/place.ts';
import type { User } from '../../os/users.ts';
import { writeFully } from '../../os/write-fully.ts';
import { type FileMetadata, replaceMetadata } from './metadata.ts';

const { O_WRONLY, O_TRUNC, O_CREAT, O_EXCL, O_NONBLOCK, O_NOCTTY } = constants;

/**
 * A file written in place, where content cannot be staged: /proc, /sys, pipes, devices, network mounts. It is opened
 * with the first batch, so that an upload that fails earlier does not truncate it. An existing file keeps its owner:
 * most are kernel interfaces, not users' files.
 */
export class DirectFile implements AsyncDisposable {
  readonly #place: Place;
  readonly #user: User;
  #file: OpenFile | null = null;
  #isNew = false;

  constructor(place: Place, user: User) {
    this.#place = place;
    this.#user = user;
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    await writeFully(await this.#open(), batch, null, signal);
  }

  /** Returns whether the metadata was stored; `durable`: calls fsync(2). */
  async commit(metadata: FileMetadata, durable: boolean): Promise<boolean> {
    const file = await this.#open();
    if (this.#isNew) await this.#changeOwner(file);
    const isRegular = (await file.stat()).isFile();
    const carriesMetadata = isRegular && (await replaceMetadata(file, metadata));
    if (durable) await file.sync();
    this.#isNew = false;
    return carriesMetadata;
  }

  /** Closes the file; removes it if it was created and not committed. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file?.close();
    if (this.#isNew) await this.#place.unlink().catch(() => {});
  }

  async #open(): Promise<OpenFile> {
    if (this.#file) return this.#file;
    this.#file = (await this.#openExisting()) ?? (await this.#create());
    await this.#file.dropSetIdBits();
    return this.#file;
  }

  async #openExisting(): Promise<OpenFile | null> {
    if (this.#place.isBelowMissing) return null;
    try {
      return await this.#place.openFile(O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY);
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return null;
      throw error;
    }
  }

  async #create(): Promise<OpenFile> {
    await this.#place.makeParents(this.#user);
    const file = await this.#place.openFile(O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK);
    this.#isNew = true;
    return file;
  }

  /** A file server may refuse it (root squash); the owner is then the server's choice. */
  async #changeOwner(file: OpenFile): Promise<void> {
    try {
      await file.chown(this.#user.uid, this.#user.gid);
    } catch (error) {
      if (!isSystemError(error, 'EPERM', 'ENOTSUP', 'EINVAL')) throw error;
    }
  }
}
