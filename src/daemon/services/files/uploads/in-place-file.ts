import { constants } from 'node:fs';
import { isSystemError } from '../../../../base/errors.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import { FILE_MODE, type PathHandle } from '../../../linux/files/place.ts';
import { writeFully } from '../../../linux/files/write-fully.ts';
import type { User } from '../../../linux/system/users.ts';
import type { FileChange } from '../entries/file-change.ts';
import { type FileMetadata, isEmpty, replaceMetadata } from '../entries/metadata.ts';

const { O_WRONLY, O_TRUNC, O_APPEND, O_CREAT, O_EXCL, O_NONBLOCK, O_NOCTTY } = constants;

/**
 * Writes a file in place, where content cannot be staged: /proc, /sys, pipes, devices, network mounts. The file is
 * opened with the first batch, so that an upload that fails earlier does not truncate it. An existing file keeps its
 * owner, because most are kernel interfaces and not users' files. Others cannot read a new file before the commit.
 */
export class InPlaceFile implements AsyncDisposable {
  readonly #place: PathHandle;
  readonly #user: User;
  readonly #change: FileChange;
  #file: OpenFile | null = null;
  #isNew = false;
  /** The next byte goes to this position, or, if it is null, to the file offset or the end. */
  #position: number | null;
  /** When the upload breaks off, this size is restored. If it is null, what was written stays. */
  #sizeBefore: number | null = null;

  constructor(place: PathHandle, user: User, change: FileChange) {
    this.#place = place;
    this.#user = user;
    this.#change = change;
    this.#position = typeof change.placement === 'number' ? change.placement : null;
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    await writeFully(await this.#open(), batch, this.#position, signal);
    if (this.#position !== null) for (const { length } of batch) this.#position += length;
  }

  /** Completes the file and returns whether the metadata was stored. If `durable` is true, it calls fsync(2). */
  async commit(metadata: FileMetadata, durable: boolean): Promise<boolean> {
    const file = await this.#open();
    if (this.#isNew) await asServerAllows(file.chown(this.#user.uid, this.#user.gid));
    const isRegular = (await file.stat()).isFile();
    const isChanged = this.#change.placement === 'whole' || !isEmpty(metadata);
    const carriesMetadata = isRegular && isChanged && (await replaceMetadata(file, metadata));
    if (isRegular && this.#change.mode !== null) await this.#setMode(file, this.#change.mode);
    else if (this.#isNew) await asServerAllows(file.chmod(FILE_MODE));
    if (durable) await file.sync();
    this.#isNew = false;
    this.#sizeBefore = null;
    return carriesMetadata;
  }

  /** Closes the file. If it was not committed, it undoes its creation, or what was appended. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#sizeBefore !== null) await this.#file?.truncate(this.#sizeBefore).catch(() => {});
    await this.#file?.close();
    if (this.#isNew) await this.#place.unlink().catch(() => {});
  }

  async #open(): Promise<OpenFile> {
    if (this.#file) return this.#file;
    this.#file = (await this.#openExisting()) ?? (await this.#create());
    await this.#file.dropSetIdBits();
    const status = await this.#file.stat();
    if (this.#change.placement === 'end' && status.isFile()) this.#sizeBefore = status.size;
    return this.#file;
  }

  async #openExisting(): Promise<OpenFile | null> {
    if (this.#place.isBelowMissing) return null;
    try {
      return await this.#place.openFile(O_WRONLY | this.#opening | O_NONBLOCK | O_NOCTTY);
    } catch (error) {
      if (isSystemError(error, 'ENOENT')) return null;
      throw error;
    }
  }

  get #opening(): number {
    if (this.#change.placement === 'end') return O_APPEND;
    return this.#change.placement === 'whole' ? O_TRUNC : 0;
  }

  /** Sets the mode. Behind a user's link it does so only for that user's files. */
  async #setMode(file: OpenFile, mode: number): Promise<void> {
    const { owner } = this.#place;
    if (owner === null || owner === (await file.stat()).uid) await file.chmod(mode);
  }

  async #create(): Promise<OpenFile> {
    await this.#place.makeParents(this.#user);
    const file = await this.#place.openFile(O_WRONLY | O_CREAT | O_EXCL | O_NONBLOCK);
    this.#isNew = true;
    return file;
  }
}

/** Waits for a change of owner or mode. A file server may refuse that (root squash), and then chooses itself. */
async function asServerAllows(change: Promise<void>): Promise<void> {
  try {
    await change;
  } catch (error) {
    if (!isSystemError(error, 'EPERM', 'ENOTSUP', 'EINVAL')) throw error;
  }
}
