import type { Allowance } from '../../../../base/allowance.ts';
import type { OpenFile } from '../../../linux/files/open-file.ts';
import type { Place } from '../../../linux/files/place.ts';
import { writeFully } from '../../../linux/files/write-fully.ts';
import { isNoSpace } from '../entries/errors.ts';
import { type Content, commit, type Destination, overwrite } from './commit.ts';
import { StagedFile } from './staged-file.ts';

/** Maximum content of one file in memory, in bytes. */
const MAX_IN_MEMORY = 1024 * 1024;

/** Conditions for keeping content in memory that cannot be staged on a full disk. */
export interface MemoryFallback {
  /** Whether the file to overwrite exists. */
  readonly exists: boolean;
  /** Bytes announced, or null. */
  readonly length: number | null;
  /** Bytes in memory of all files together. */
  readonly memory: Allowance;
}

/**
 * Content of an upload: staged in an unnamed temporary file or, if the disk is full, kept in memory until it is
 * complete and can overwrite the existing file.
 */
export class IncomingFile implements AsyncDisposable {
  #content: StagedFile | MemoryContent;
  readonly #fallback: MemoryFallback;

  private constructor(content: StagedFile | MemoryContent, fallback: MemoryFallback) {
    this.#content = content;
    this.#fallback = fallback;
  }

  /** Null where the file system does not support unnamed temporary files. */
  static async open(place: Place, fallback: MemoryFallback): Promise<IncomingFile | null> {
    try {
      const staged = await StagedFile.open(place);
      return staged && new IncomingFile(staged, fallback);
    } catch (error) {
      return new IncomingFile(MemoryContent.open(0, error, fallback), fallback);
    }
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    try {
      await this.#content.write(batch, signal);
    } catch (error) {
      await this.#moveToMemory(error);
      await this.#content.write(batch, signal);
    }
  }

  /** To be called when all content has been received. */
  complete(): void {
    if (this.#content instanceof MemoryContent) this.#content.complete();
  }

  /** Writes it to the destination. Returns whether the metadata was stored. */
  async commit(destination: Destination): Promise<boolean> {
    try {
      return await commitAny(this.#content, destination);
    } catch (error) {
      // Without the staged copy there may be enough space for the growth of the file.
      await this.#moveToMemory(error);
      return commitAny(this.#content, destination);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#content[Symbol.asyncDispose]();
  }

  /** Moves staged content to memory, which frees disk space. Throws `cause` if that is not possible. */
  async #moveToMemory(cause: unknown): Promise<void> {
    const staged = this.#content;
    if (staged instanceof MemoryContent) throw cause;
    const inMemory = MemoryContent.open(staged.size, cause, this.#fallback);
    this.#content = inMemory;
    try {
      await inMemory.write([await staged.read()]);
    } finally {
      await staged[Symbol.asyncDispose]();
    }
  }
}

async function commitAny(content: StagedFile | MemoryContent, destination: Destination): Promise<boolean> {
  if (content instanceof StagedFile) return commit(content, destination);
  const carriesMetadata = await overwrite(content, destination);
  if (carriesMetadata === null) throw content.cause;
  return carriesMetadata;
}

/** Content in memory. If it grows too large, writing throws `cause`, the reason why it could not be staged. */
class MemoryContent implements Content, AsyncDisposable {
  readonly cause: unknown;
  readonly #memory: Allowance;
  /** Bytes reserved of the allowance. */
  #reserved: number;
  #batches: Buffer[] = [];
  #size = 0;

  private constructor(cause: unknown, memory: Allowance, reserved: number) {
    this.cause = cause;
    this.#memory = memory;
    this.#reserved = reserved;
  }

  /** Reserves memory for all of it; `size` bytes have been received. Throws `cause` if it cannot be kept in memory. */
  static open(size: number, cause: unknown, { exists, length, memory }: MemoryFallback): MemoryContent {
    const reserved = length ?? MAX_IN_MEMORY;
    const fits = exists && isNoSpace(cause) && size <= reserved && reserved <= MAX_IN_MEMORY;
    if (!fits || !memory.take(reserved)) throw cause;
    return new MemoryContent(cause, memory, reserved);
  }

  get size(): number {
    return this.#size;
  }

  async write(batch: readonly Buffer[]): Promise<void> {
    this.#size += batch.reduce((sum, { length }) => sum + length, 0);
    if (this.#size > this.#reserved) throw this.cause;
    this.#batches.push(Buffer.concat(batch));
  }

  async copyTo(target: OpenFile, offset: number): Promise<void> {
    await writeFully(target, this.#batches, offset, AbortSignal.any([]));
  }

  /** Releases the memory that was reserved and not used. */
  complete(): void {
    this.#memory.release(this.#reserved - this.#size);
    this.#reserved = this.#size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#memory.release(this.#reserved);
    this.#reserved = 0;
    this.#batches = [];
  }
}
