import type { Allowance } from '../../../base/allowance.ts';
import type { OpenFile } from '../../os/open-file.ts';
import type { Place } from '../../os/place.ts';
import { writeFully } from '../../os/write-fully.ts';
import { type Content, commit, type Destination, overwrite } from './commit.ts';
import { isNoSpace } from './errors.ts';
import { type Move, StagedFile } from './staged-file.ts';

/** The most that is kept in memory of one file, in bytes. */
const MOST = 1024 * 1024;

/** Whether content that finds no room to be staged can be kept in memory. */
export interface WithoutRoom {
  /** Whether there is a file to write it over. */
  readonly exists: boolean;
  /** Bytes announced, or null. */
  readonly length: number | null;
  /** Bytes that all files together may have in memory. */
  readonly memory: Allowance;
}

/**
 * Content on its way to a file: staged beside it or, where there is no room for that, kept in memory until all of it has
 * arrived and can be written over the file that is there.
 */
export class IncomingFile implements AsyncDisposable {
  #content: StagedFile | HeldContent;
  readonly #withoutRoom: WithoutRoom;

  private constructor(content: StagedFile | HeldContent, withoutRoom: WithoutRoom) {
    this.#content = content;
    this.#withoutRoom = withoutRoom;
  }

  /** Null where the file system cannot stage. */
  static async open(place: Place, withoutRoom: WithoutRoom): Promise<IncomingFile | null> {
    try {
      const staged = await StagedFile.open(place);
      return staged && new IncomingFile(staged, withoutRoom);
    } catch (error) {
      return new IncomingFile(HeldContent.open(0, error, withoutRoom), withoutRoom);
    }
  }

  async write(batch: readonly Buffer[], signal: AbortSignal): Promise<void> {
    try {
      await this.#content.write(batch, signal);
    } catch (error) {
      await this.#hold(error);
      await this.#content.write(batch, signal);
    }
  }

  /** Appends what has arrived, of content with more bytes than are kept in memory. */
  async take(piece: Buffer | Move, signal: AbortSignal): Promise<void> {
    if (this.#content instanceof HeldContent) throw this.#content.cause;
    await this.#content.take(piece, signal);
  }

  /** To be called when all has arrived. */
  complete(): void {
    if (this.#content instanceof HeldContent) this.#content.complete();
  }

  /** Makes it the file at the destination. Returns whether that carries the metadata. */
  async commit(destination: Destination): Promise<boolean> {
    try {
      return await commitAny(this.#content, destination);
    } catch (error) {
      // There may be room for what the file grows by, but not beside what is staged.
      await this.#hold(error);
      return commitAny(this.#content, destination);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#content[Symbol.asyncDispose]();
  }

  /** Takes what was staged into memory, which makes room. Throws `cause` when that cannot be done. */
  async #hold(cause: unknown): Promise<void> {
    const staged = this.#content;
    if (staged instanceof HeldContent) throw cause;
    const held = HeldContent.open(staged.size, cause, this.#withoutRoom);
    this.#content = held;
    try {
      await held.write([await staged.read()]);
    } finally {
      await staged[Symbol.asyncDispose]();
    }
  }
}

async function commitAny(content: StagedFile | HeldContent, destination: Destination): Promise<boolean> {
  if (content instanceof StagedFile) return commit(content, destination);
  const carriesMetadata = await overwrite(content, destination);
  if (carriesMetadata === null) throw content.cause;
  return carriesMetadata;
}

/** Content in memory; what is more than may be kept there is refused with the reason why it is there. */
class HeldContent implements Content, AsyncDisposable {
  readonly cause: unknown;
  readonly #memory: Allowance;
  /** Bytes that have been taken of it. */
  #most: number;
  #batches: Buffer[] = [];
  #size = 0;

  private constructor(cause: unknown, memory: Allowance, most: number) {
    this.cause = cause;
    this.#memory = memory;
    this.#most = most;
  }

  /** Takes the memory for all of it, of which `size` bytes have arrived. Throws `cause` when it cannot be kept there. */
  static open(size: number, cause: unknown, { exists, length, memory }: WithoutRoom): HeldContent {
    const most = length ?? MOST;
    const fits = exists && isNoSpace(cause) && size <= most && most <= MOST;
    if (!fits || !memory.take(most)) throw cause;
    return new HeldContent(cause, memory, most);
  }

  get size(): number {
    return this.#size;
  }

  async write(batch: readonly Buffer[]): Promise<void> {
    this.#size += batch.reduce((sum, { length }) => sum + length, 0);
    if (this.#size > this.#most) throw this.cause;
    this.#batches.push(Buffer.concat(batch));
  }

  async copyTo(target: OpenFile): Promise<void> {
    await writeFully(target, this.#batches, 0, AbortSignal.any([]));
  }

  /** Gives back what is not needed when all has arrived. */
  complete(): void {
    this.#memory.giveBack(this.#most - this.#size);
    this.#most = this.#size;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#memory.giveBack(this.#most);
    this.#most = 0;
    this.#batches = [];
  }
}
