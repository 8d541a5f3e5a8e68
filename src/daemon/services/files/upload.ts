import { basename } from 'node:path';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError, type ErrorKind } from '../../../base/errors.ts';
import { KeyedQueues } from '../../../base/exclusion.ts';
import { explain, isOutOfSpace } from '../../os/errno.ts';
import { resolvePath } from '../../os/paths.ts';
import { Place } from '../../os/place.ts';
import type { User } from '../../os/users.ts';
import { writeInBatches } from './batches.ts';
import { DirectFile } from './direct-file.ts';
import { syncDirectories } from './durability.ts';
import { noSpace } from './errors.ts';
import { IncomingFile } from './incoming-file.ts';
import { type FileMetadata, type Metadata, validateMetadata } from './metadata.ts';
import type { Move } from './staged-file.ts';

/** One file of an upload, its content as it arrives. */
export interface UploadPart {
  /** As the client sent it. */
  readonly path: string;
  /** Nobody else may use the pieces. */
  readonly content: AsyncIterable<Buffer>;
  /** The same content for a file that can take moves, in place of `content`; null where there is but that. */
  direct(): AsyncIterable<Buffer | Move> | null;
  /** Bytes announced, or null. */
  readonly length: number | null;
}

/** The same part, with all of its pieces going through `step`. */
export function throughout(
  part: UploadPart,
  step: <Piece extends Buffer | Move>(pieces: AsyncIterable<Piece>) => AsyncIterable<Piece>,
): UploadPart {
  const direct = () => {
    const pieces = part.direct();
    return pieces && step(pieces);
  };
  return { ...part, content: step(part.content), direct };
}

export interface UploadContext {
  readonly user: User;
  readonly defaultWorkdir: string | null;
  /** Put on every file, in place of what it had. */
  readonly metadata: FileMetadata;
  /** Whether to return only when files and names would outlive a crash of the guest. */
  readonly durable: boolean;
  /** Whether nothing may be kept before `parts` has come to its end, which tells if what arrived is right. */
  readonly verified: boolean;
  /** Aborts when the client is gone. */
  readonly signal: AbortSignal;
  readonly common: UploadsInCommon;
}

/** Overwrites of one file that may wait for the one under way. */
const MAX_OVERWRITES = 1024;

/** What all uploads have in common. */
export interface UploadsInCommon {
  /** By inode. */
  readonly overwrites: KeyedQueues;
  /** Bytes that are kept in memory for want of room on the disk. */
  readonly memory: Allowance;
  /** Files that have been received and not committed: each holds a descriptor. */
  readonly uncommitted: Allowance;
}

export function uploadsInCommon(): UploadsInCommon {
  return {
    overwrites: new KeyedQueues('overwrite the file', MAX_OVERWRITES),
    memory: new Allowance(16 * 1024 * 1024),
    uncommitted: new Allowance(MAX_ALL_UNCOMMITTED),
  };
}

export interface UploadedFile {
  readonly path: string;
  readonly name: string;
  readonly type: 'file';
  readonly metadata?: Metadata;
}

/** Content that has been received, and its way to the path. */
interface Received {
  readonly path: string;
  /** Where it leads to. */
  readonly place: Place;
  readonly length: number | null;
  readonly file: AsyncDisposable;
  readonly commit: () => Promise<boolean>;
}

/** Received files hold two descriptors each, that of their directory, too: beyond this number, in one upload and in all, they are committed early. */
const MAX_UNCOMMITTED = 256;
const MAX_ALL_UNCOMMITTED = 2048;
const TOO_MANY_WITH_DIGEST = [
  'invalid_argument',
  `an upload with a digest can have at most ${MAX_UNCOMMITTED - 1} files`,
] as const;
const TOO_MANY_UNCOMMITTED = [
  'resource_exhausted',
  'too many files are being uploaded to hold back those of an upload with a digest: send it again later',
] as const;

/**
 * Receives all parts, then makes them files: an upload that breaks off has changed nothing.
 * Throws `invalid_argument` for a path that comes twice (what came before is kept), a directory, bad metadata or
 * more files than can be held back, and `no_space`.
 */
export async function upload(
  parts: AsyncIterable<UploadPart>,
  context: UploadContext,
): Promise<UploadedFile[]> {
  validateMetadata(context.metadata);
  const batch = new UploadBatch(context);
  try {
    for await (const part of parts) {
      if (!(await batch.receive(part))) {
        if (!context.verified) await batch.commit();
        throw new EnvdError('invalid_argument', `path was sent more than once: '${part.path}'`);
      }
    }
    await batch.commit();
    return batch.files;
  } finally {
    await batch[Symbol.asyncDispose]();
  }
}

class UploadBatch implements AsyncDisposable {
  readonly files: UploadedFile[] = [];
  readonly #context: UploadContext;
  readonly #paths = new Set<string>();
  #received: Received[] = [];
  /** How many of them the allowance of all uploads knows of. */
  #counted = 0;

  constructor(context: UploadContext) {
    this.#context = context;
  }

  /** False, with nothing of it read, for a path that was received before. */
  async receive(part: UploadPart): Promise<boolean> {
    const path = resolvePath(part.path, this.#context.user, this.#context.defaultWorkdir);
    if (this.#paths.has(path)) return false;
    this.#paths.add(path);
    this.#received.push(await withExplanation(path, part.length, () => receive(path, part, this.#context)));
    if (this.#received.length >= MAX_UNCOMMITTED) await this.#commitEarly(TOO_MANY_WITH_DIGEST);
    else if (this.#context.common.uncommitted.take(1)) this.#counted++;
    else await this.#commitEarly(TOO_MANY_UNCOMMITTED);
    return true;
  }

  /** Fails with the reason where everything has to be held back. */
  async #commitEarly([kind, message]: readonly [ErrorKind, string]): Promise<void> {
    if (this.#context.verified) throw new EnvdError(kind, message);
    await this.commit();
  }

  async commit(): Promise<void> {
    for (const { path, length, commit } of this.#received) {
      const carriesMetadata = await withExplanation(path, length, commit);
      const { values } = this.#context.metadata;
      const shown = carriesMetadata && Object.keys(values).length > 0 ? { metadata: values } : {};
      this.files.push({ path, name: basename(path), type: 'file', ...shown });
    }
    if (this.#context.durable) {
      await syncDirectories(await Promise.all(this.#received.map(({ place }) => place.directoryPath())));
    }
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const received = this.#received;
    this.#received = [];
    this.#context.common.uncommitted.giveBack(this.#counted);
    this.#counted = 0;
    await Promise.all(received.map(({ file }) => file[Symbol.asyncDispose]()));
    for (const { place } of received) place[Symbol.dispose]();
  }
}

async function receive(path: string, part: UploadPart, context: UploadContext): Promise<Received> {
  const place = await Place.open(path, true);
  try {
    return await receiveAt(place, path, part, context);
  } catch (error) {
    place[Symbol.dispose]();
    throw error;
  }
}

async function receiveAt(
  place: Place,
  path: string,
  part: UploadPart,
  context: UploadContext,
): Promise<Received> {
  const status = await place.status();
  if (status?.isDirectory()) throw new EnvdError('invalid_argument', `path is a directory: ${path}`);
  const { user, metadata, durable, signal } = context;
  const { overwrites, memory } = context.common;
  const exists = status !== null;

  if (!status || status.isFile()) await place.assertMayWrite(status);
  const withoutRoom = { exists, length: part.length, memory };
  const incoming = status && !status.isFile() ? null : await IncomingFile.open(place, withoutRoom);
  const file = incoming ?? new DirectFile(place, user);
  try {
    const direct = incoming && part.direct();
    if (direct) for await (const piece of direct) await incoming.take(piece, signal);
    else await writeInBatches(part.content, (batch) => file.write(batch, signal));
    incoming?.complete();
  } catch (error) {
    await file[Symbol.asyncDispose]();
    throw error;
  }
  const target = { place, path, exists, user, metadata, overwrites, durable };
  const commit =
    file instanceof DirectFile ? () => file.commit(metadata, durable) : () => file.commit(target);
  return { path, place, length: part.length, file, commit };
}

async function withExplanation<T>(path: string, length: number | null, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw isOutOfSpace(error) ? await noSpace(length, path, error) : explain(error, path, 'make');
  }
}
