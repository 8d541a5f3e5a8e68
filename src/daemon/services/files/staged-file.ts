import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { EnvdError } from '../../../base/errors.ts';
import { native } from '../../os/native.ts';
import type { OpenFile } from '../../os/open-file.ts';
import type { Place } from '../../os/place.ts';
import type { User } from '../../os/users.ts';
import { writeFully } from '../../os/write-fully.ts';

/** Moves content that has arrived to an open file at a position, past JavaScript; resolves with the bytes moved. */
export type Move = (descriptor: number, position: number) => Promise<number>;

/**
 * Content on its way into a file. It has no name (O_TMPFILE): nobody can open it, and it is gone with its descriptor,
 * however the daemon ends. `commit` and `replaceFile` make it a file.
 */
export class StagedFile implements AsyncDisposable {
  readonly #file: OpenFile;
  readonly #place: Place;
  /** Another name in the place's directory, until it is renamed. */
  #temporary: string | null;
  #size = 0;

  private constructor(file: OpenFile, place: Place, temporary: string | null) {
    this.#file = file;
    this.#place = place;
    this.#temporary = temporary;
  }

  /**
   * Stages what is to get the name, in its directory or, while that is missing, in the nearest one above.
   * Null where the file system cannot.
   */
  static async open(place: Place): Promise<StagedFile | null> {
    const file = await place.openUnnamed();
    return file && new StagedFile(file, place, null);
  }

  /** The same under a temporary name, for file systems that know no files without one. */
  static async openNamed(place: Place, user: User): Promise<StagedFile> {
    await place.makeParents(user);
    const temporary = temporaryName();
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL;
    return new StagedFile(await place.openFile(flags, temporary), place, temporary);
  }

  get descriptor(): number {
    return this.#file.fd;
  }

  /** Bytes written so far. */
  get size(): number {
    return this.#size;
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    await writeFully(this.#file, batch, this.#size, signal);
    for (const piece of batch) this.#size += piece.length;
  }

  /** Appends what has arrived. */
  async take(piece: Buffer | Move, signal: AbortSignal): Promise<void> {
    if (typeof piece === 'function') this.#size += await piece(this.#file.fd, this.#size);
    else await this.write([piece], signal);
  }

  /** Appends the whole content of an open file. */
  async append(source: OpenFile): Promise<void> {
    this.#size += await native.copyRange(source.fd, this.#file.fd, this.#size, Number.MAX_SAFE_INTEGER);
  }

  /** All of it, for content that fits into memory. */
  async read(): Promise<Buffer> {
    const content = Buffer.alloc(this.#size);
    return content.subarray(0, await this.#file.read(content, this.#size, 0));
  }

  /** Writes the content over the start of an open file. */
  async copyTo(target: OpenFile): Promise<void> {
    await native.copyRange(this.#file.fd, target.fd, 0, this.#size);
  }

  /** Waits until the storage has the content. */
  async sync(): Promise<void> {
    await this.#file.sync();
  }

  async setMode(mode: number): Promise<void> {
    await this.#file.chmod(mode);
  }

  /** Gives it the name; fails with EEXIST when that is taken. */
  async publish(user: User): Promise<void> {
    if (this.#temporary) await this.replace(user);
    else await this.#place.publish(this.#file, user);
  }

  /** Gives it the name in place of what has it. Throws `aborted` when others have exchanged the temporary one. */
  async replace(user: User): Promise<void> {
    if (this.#temporary) {
      await this.#file.chown(user.uid, user.gid);
    } else {
      const temporary = temporaryName();
      await this.#place.publish(this.#file, user, temporary);
      this.#temporary = temporary;
    }
    await this.#place.assertMayChange();
    await this.#place.replaceBy(this.#temporary);
    this.#temporary = null;
    const [own, named] = await Promise.all([this.#file.stat(), this.#place.status()]);
    if (named?.ino !== own.ino) {
      throw new EnvdError('aborted', 'another file has taken the place of the one that was written');
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#file.close();
    if (this.#temporary) await this.#place.unlink(this.#temporary).catch(() => {});
  }
}

/** Short, whatever the length of the file's own name. */
function temporaryName(): string {
  return `.envd-${randomBytes(8).toString('hex')}`;
}
