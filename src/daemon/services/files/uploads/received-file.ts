import type { Stats } from 'node:fs';
import type { Allowance } from '../../../../base/allowance.ts';
import { freeBuffer } from '../../../../base/buffers.ts';
import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import type { KeyedQueues } from '../../../../base/exclusion.ts';
import type { Transfers } from '../../../../base/tally.ts';
import { Place } from '../../../linux/files/place.ts';
import type { Lanes } from '../../../linux/lanes/lanes.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import { explain, isOutOfSpace } from '../../../linux/system/errno.ts';
import type { User } from '../../../linux/system/users.ts';
import type { WriteGate } from '../../pause/write-gate.ts';
import { noSpace } from '../entries/errors.ts';
import { type FileChange, REPLACE } from '../entries/file-change.ts';
import { type FileMetadata, isEmpty } from '../entries/metadata.ts';
import { versionAt } from './commit.ts';
import { DirectFile } from './direct-file.ts';
import { IncomingFile } from './incoming-file.ts';
import { storeSmallFile } from './small-file.ts';

/** Maximum of bytes and pieces of a file that is kept in memory until its commit. */
const SMALL_BYTES = 64 * 1024;
const SMALL_PIECES = 16;

/** What all files of an upload share. */
export interface FileContext {
  readonly user: User;
  /** Replaces the metadata of every file. */
  readonly metadata: FileMetadata;
  readonly change: FileChange;
  /** Whether to fsync(2) files and directories before returning. */
  readonly durable: boolean;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
  readonly shared: UploadResources;
}

/** Queues, limits and counters that all uploads share. */
export interface UploadResources {
  readonly lanes: Lanes;
  /** Every step that changes files passes it. */
  readonly gate: WriteGate;
  readonly tally: Transfers;
  /** Overwrites in progress, by device and inode. */
  readonly overwrites: KeyedQueues;
  /** Bytes of small files that are kept in memory. */
  readonly small: Allowance;
  /** Bytes kept in memory because the disk is full. */
  readonly memory: Allowance;
  /** Files that have been received and not committed. */
  readonly uncommitted: Allowance;
}

interface OpenedFile {
  readonly place: Place;
  readonly exists: boolean;
  readonly file: IncomingFile | DirectFile;
}

/**
 * A file of an upload, from its first byte to its commit. A small one is kept in memory and stored at once; all others
 * are staged in an unnamed file, or written in place where that is not possible.
 */
export class ReceivedFile implements AsyncDisposable {
  readonly path: string;
  readonly #length: number | null;
  readonly #context: FileContext;
  /** All content so far, while the file is small; null afterwards. */
  #pieces: Buffer[] | null = [];
  #size = 0;
  #opened: OpenedFile | null = null;

  /** `length`: announced size in bytes, or null. */
  constructor(path: string, length: number | null, context: FileContext) {
    this.path = path;
    this.#length = length;
    this.#context = context;
  }

  async write(batch: readonly Buffer[]): Promise<void> {
    const size = batch.reduce((sum, { length }) => sum + length, 0);
    this.#context.shared.tally.bytes += size;
    if (this.#keep(batch, size)) return;
    await this.#change(async () => {
      const { file } = await this.#open();
      await file.write(batch, this.#context.signal);
    });
    for (const piece of batch) freeBuffer(piece);
  }

  /** Prepares the commit, with all errors that can be known before it. To be called when all content has arrived. */
  async stage(): Promise<void> {
    const { file } = await this.#change(() => this.#open());
    if (file instanceof IncomingFile) file.complete();
  }

  /** Gives the file its name and returns whether the metadata was stored. */
  async commit(): Promise<boolean> {
    const { durable, metadata, change } = this.#context;
    const isPlain = !durable && isEmpty(metadata) && change === REPLACE;
    const pieces = isPlain ? this.#pieces : null;
    if (pieces && (await this.#change(() => this.#store(pieces)))) return true;
    await this.stage();
    return this.#change(() => this.#commitOpened());
  }

  /** The directory, after the commit of a durable file. */
  async directoryPath(): Promise<BytePath> {
    return (await this.#open()).place.directoryPath();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#forgetPieces();
    const opened = this.#opened;
    if (!opened) return;
    this.#opened = null;
    await this.#context.shared.gate.inside(() => opened.file[Symbol.asyncDispose]());
    opened.place[Symbol.dispose]();
  }

  /** Keeps the batch in memory if the file is small still. */
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

  async #store(pieces: readonly Buffer[]): Promise<boolean> {
    const content = pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces);
    const { user, metadata, shared } = this.#context;
    const { overwrites, lanes } = shared;
    const metadataPrefix = metadata.prefix;
    return storeSmallFile({ path: this.path, content, user, metadataPrefix, overwrites, lanes });
  }

  /** Opens the file, and writes what was kept in memory. */
  async #open(): Promise<OpenedFile> {
    if (this.#opened) return this.#opened;
    const { lanes, memory } = this.#context.shared;
    this.#opened = await openFile(this.path, this.#context, lanes, { length: this.#length, memory });
    const pieces = this.#pieces ?? [];
    if (pieces.length > 0) await this.#opened.file.write(pieces, this.#context.signal);
    this.#forgetPieces();
    return this.#opened;
  }

  async #commitOpened(): Promise<boolean> {
    const { place, exists, file } = await this.#open();
    const { user, metadata, change, durable, shared } = this.#context;
    const { overwrites } = shared;
    if (file instanceof DirectFile) return file.commit(metadata, durable);
    return file.commit({ place, path: this.path, exists, user, metadata, change, overwrites, durable });
  }

  /** Runs a step that changes files; translates its errors. */
  async #change<T>(step: () => Promise<T>): Promise<T> {
    try {
      return await this.#context.shared.gate.inside(step);
    } catch (error) {
      if (!isOutOfSpace(error)) throw explain(error, this.path, 'make');
      throw await noSpace(this.#length, this.path, error, this.#context.shared.lanes);
    }
  }
}

type Fallback = { readonly length: number | null; readonly memory: Allowance };

async function openFile(
  path: string,
  context: FileContext,
  lanes: Lanes,
  fallback: Fallback,
): Promise<OpenedFile> {
  const place = await Place.open(path, true, lanes);
  try {
    return await openAt(place, path, context, fallback);
  } catch (error) {
    place[Symbol.dispose]();
    throw error;
  }
}

async function openAt(
  place: Place,
  path: string,
  { user, change }: FileContext,
  fallback: Fallback,
): Promise<OpenedFile> {
  const status = await place.status();
  if (status?.isDirectory()) throw new EnvdError('invalid_argument', `path is a directory: ${path}`);
  // Checked now, before all content is received, and again when it is written.
  if (change.assertExpected) change.assertExpected(await versionAt(place));
  const exists = status !== null;
  if (!status || status.isFile()) await assertMayStore(place, status);
  const incoming =
    status && !status.isFile() ? null : await IncomingFile.open(place, { exists, ...fallback });
  return { place, exists, file: incoming ?? new DirectFile(place, user, change) };
}

/** A program that is running cannot be written to, but replaced. */
async function assertMayStore(place: Place, status: Stats | null): Promise<void> {
  try {
    await place.assertMayWrite(status);
  } catch (error) {
    if (!isSystemError(error, 'ETXTBSY')) throw error;
    await place.assertMayChange();
  }
}
