import { constants } from 'node:fs';
import { type FileHandle, open, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isSystemError } from '../../../base/errors.ts';
import { ensureDirectory } from '../../os/paths.ts';
import { dropSetIdBits } from '../../os/set-id-bits.ts';
import type { User } from '../../os/users.ts';
import { writeFully } from '../../os/write-fully.ts';
import { syncFile } from './durability.ts';
import { type FileMetadata, replaceMetadata } from './metadata.ts';

const { O_WRONLY, O_TRUNC, O_CREAT, O_EXCL, O_NONBLOCK, O_NOCTTY } = constants;

/**
 * A file written in place, for where content cannot be staged: /proc, /sys, pipes, devices, network mounts. It is
 * opened with the first batch, so that what breaks off before leaves it alone. What exists keeps its owner: these
 * are mostly interfaces of the kernel, and no user's files.
 */
export class DirectFile implements AsyncDisposable {
  readonly #path: string;
  readonly #user: User;
  #file: FileHandle | null = null;
  #isNew = false;

  constructor(path: string, user: User) {
    this.#path = path;
    this.#user = user;
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    await writeFully(await this.#open(), batch, null, signal);
  }

  /** Returns whether the file carries the metadata; `durable`: once the storage has the content. */
  async commit(metadata: FileMetadata, durable: boolean): Promise<boolean> {
    const file = await this.#open();
    if (this.#isNew) await this.#giveToUser(file);
    const isRegular = (await file.stat()).isFile();
    const carriesMetadata = isRegular && (await replaceMetadata(file.fd, metadata));
    if (durable) await syncFile(file);
    this.#isNew = false;
    return carriesMetadata;
  }

  /** Closes the file, and removes it when it was made for an upload that was not committed. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file?.close();
    if (this.#isNew) await rm(this.#path, { force: true });
  }

  async #open(): Promise<FileHandle> {
    if (this.#file) return this.#file;
    this.#file = (await this.#openExisting()) ?? (await this.#create());
    await dropSetIdBits(this.#file);
    return this.#file;
  }

  async #openExisting(): Promise<FileHandle | null> {
    try {
      return await open(this.#path, O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY);
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return null;
      throw error;
    }
  }

  async #create(): Promise<FileHandle> {
    await ensureDirectory(dirname(this.#path), this.#user);
    const file = await open(this.#path, O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK, 0o666);
    this.#isNew = true;
    return file;
  }

  /** Servers of network mounts may refuse it (root squash): the file is theirs then. */
  async #giveToUser(file: FileHandle): Promise<void> {
    try {
      await file.chown(this.#user.uid, this.#user.gid);
    } catch (error) {
      if (!isSystemError(error, 'EPERM', 'ENOTSUP', 'EINVAL')) throw error;
    }
  }
}
