import type { Stats } from 'node:fs';
import { freeBuffer } from '../../../../base/buffers.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { PathHandle } from '../../../linux/files/place.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { explain, isOutOfSpace } from '../../../linux/system/errno.ts';
import { noSpace } from '../entries/errors.ts';
import { REPLACE } from '../entries/file-change.ts';
import { isEmpty } from '../entries/metadata.ts';
import { overwrite, publish, versionAt } from './commit.ts';
import type { FileContext } from './context.ts';
import { InPlaceFile } from './in-place-file.ts';
import { MemoryContent } from './memory-content.ts';
import { storeSmallFile } from './small-file.ts';
import { StagedFile } from './staged-file.ts';

/** A file with at most this many bytes and pieces is kept in memory until its commit. */
const SMALL_BYTES = 1024 * 1024;
const SMALL_PIECES = 64;

interface OpenedFile {
  readonly place: PathHandle;
  /** Says whether the file existed when the upload began. */
  readonly exists: boolean;
  file: StagedFile | MemoryContent | InPlaceFile;
}

/**
 * Manages a file of an upload from its first byte to its commit. A small one is kept in memory and stored at once. All
 * others are staged in an unnamed file, or written in place where that is not possible. On a full disk, content that
 * replaces a file is kept in memory.
 */
export class ReceivedFile implements AsyncDisposable {
  readonly path: string;
  readonly #length: number | null;
  readonly #context: FileContext;
  /** All content so far while the file is small. It is null afterwards. */
  #pieces: Buffer[] | null = [];
  #size = 0;
  #opened: OpenedFile | null = null;

  /** `length` is the announced size in bytes, or null. */
  constructor(path: string, length: number | null, context: FileContext) {
    this.path = path;
    this.#length = length;
    this.#context = context;
  }

  /** Appends pieces, which belong to the file from then on. */
  async write(batch: readonly Buffer[]): Promise<void> {
    const size = batch.reduce((sum, { length }) => sum + length, 0);
    this.#context.shared.tally.bytes += size;
    if (this.#keep(batch, size)) return;
    await this.#change(async () => this.#append(await this.#open(), batch));
    for (const piece of batch) freeBuffer(piece);
  }

  /** Prepares the commit, and throws all errors that can be known before it. Call it when all content has arrived. */
  async stage(): Promise<void> {
    const { file } = await this.#change(() => this.#open());
    if (file instanceof MemoryContent) file.complete();
  }

  /** Gives the file its name and returns whether the metadata was stored. */
  async commit(): Promise<boolean> {
    const { durable, metadata, change } = this.#context;
    const isPlain = !durable && isEmpty(metadata) && change === REPLACE;
    const pieces = isPlain ? this.#pieces : null;
    if (pieces) {
      const content = pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces);
      if (await this.#change(() => storeSmallFile(this.path, content, this.#context))) {
        this.#forgetPieces();
        for (const buffer of new Set([...pieces, content])) freeBuffer(buffer);
        return true;
      }
    }
    await this.stage();
    return this.#change(async () => this.#commitOpened(await this.#open()));
  }

  /** Returns the directory, after the commit of a durable file. */
  async directoryPath(): Promise<BytePath> {
    return (await this.#open()).place.directoryPath();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#forgetPieces();
    const opened = this.#opened;
    if (!opened) return;
    this.#opened = null;
    await this.#context.shared.gate.runStep(() => opened.file[Symbol.asyncDispose]());
    opened.place[Symbol.dispose]();
  }

  /** Keeps the batch in memory if the file is still small. */
  #keep(batch: readonly Buffer[], size: number): boolean {
    const pieces = this.#pieces;
    if (!pieces || this.#context.durable) return false;
    const isSmall = this.#size + size <= SMALL_BYTES && pieces.length + batch.length <= SMALL_PIECES;
    if (!isSmall || !this.#context.shared.small.take(size)) return false;
    this.#size += size;
    pieces.push(...batch);
    return true;
  }

  #forgetPieces(): void {
    if (!this.#pieces) return;
    this.#context.shared.small.release(this.#size);
    this.#pieces = null;
  }

  /** Opens the file, and writes what was kept in memory. */
  async #open(): Promise<OpenedFile> {
    if (this.#opened) return this.#opened;
    const place = await PathHandle.open(this.path, true, this.#context.shared.lanes);
    try {
      this.#opened = await this.#openAt(place);
    } catch (error) {
      place[Symbol.dispose]();
      throw error;
    }
    const pieces = this.#pieces ?? [];
    if (pieces.length > 0) await this.#append(this.#opened, pieces);
    this.#forgetPieces();
    for (const piece of pieces) freeBuffer(piece);
    return this.#opened;
  }

  async #openAt(place: PathHandle): Promise<OpenedFile> {
    const { change, user } = this.#context;
    const status = await place.status();
    if (status?.isDirectory()) throw new EnvdError('invalid_argument', `path is a directory: ${this.path}`);
    // The version is checked now, before all content is received, and again when it is written.
    if (change.assertExpected) change.assertExpected(await versionAt(place));
    const inPlace = new InPlaceFile(place, user, change);
    if (status && !status.isFile()) return { place, exists: true, file: inPlace };
    await assertMayStore(place, status);
    const exists = status !== null;
    try {
      return { place, exists, file: (await StagedFile.open(place)) ?? inPlace };
    } catch (error) {
      return { place, exists, file: this.#memoryFor(0, exists, error) };
    }
  }

  async #append(opened: OpenedFile, batch: readonly Buffer[]): Promise<void> {
    const { signal } = this.#context;
    try {
      await opened.file.write(batch, signal);
    } catch (error) {
      await this.#moveToMemory(opened, error);
      await opened.file.write(batch, signal);
    }
  }

  async #commitOpened(opened: OpenedFile): Promise<boolean> {
    const { place, exists, file } = opened;
    const { metadata, durable } = this.#context;
    if (file instanceof InPlaceFile) return file.commit(metadata, durable);
    const destination = { place, path: this.path, exists, context: this.#context };
    let content = file;
    if (content instanceof StagedFile) {
      try {
        return await publish(content, destination);
      } catch (error) {
        // Without the staged copy there may be enough space for the growth of the file.
        content = await this.#moveToMemory(opened, error);
      }
    }
    const carriesMetadata = await overwrite(content, destination);
    if (carriesMetadata === null) throw content.cause;
    return carriesMetadata;
  }

  /** Moves staged content to memory, which frees disk space. Throws `cause` if that is not possible. */
  async #moveToMemory(opened: OpenedFile, cause: unknown): Promise<MemoryContent> {
    const staged = opened.file;
    if (!(staged instanceof StagedFile)) throw cause;
    const inMemory = this.#memoryFor(staged.size, opened.exists, cause);
    opened.file = inMemory;
    try {
      await inMemory.write([await staged.read()]);
    } finally {
      await staged[Symbol.asyncDispose]();
    }
    return inMemory;
  }

  /** Returns memory for the content. A new file fails with `cause`, because it has no old content to keep meanwhile. */
  #memoryFor(size: number, exists: boolean, cause: unknown): MemoryContent {
    if (!exists) throw cause;
    return new MemoryContent(size, this.#length, cause, this.#context.shared.memory);
  }

  /** Runs a step that changes files, and translates its errors. */
  async #change<T>(step: () => Promise<T>): Promise<T> {
    const { gate, lanes } = this.#context.shared;
    try {
      return await gate.runStep(step);
    } catch (error) {
      if (!isOutOfSpace(error)) throw explain(error, this.path, 'make');
      throw await noSpace(this.#length, this.path, error, lanes);
    }
  }
}

/** Throws if the file may not be stored. A program that is running cannot be written to, but replaced. */
async function assertMayStore(place: PathHandle, status: Stats | null): Promise<void> {
  try {
    await place.assertMayWrite(status);
  } catch (error) {
    if (!isSystemError(error, 'ETXTBSY')) throw error;
    await place.assertMayChange();
  }
}
