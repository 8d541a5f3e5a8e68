import { basename } from 'node:path';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError, type ErrorKind } from '../../../base/errors.ts';
import { KeyedQueues } from '../../../base/exclusion.ts';
import { explain, isOutOfSpace } from '../../os/errno.ts';
import type { Lanes } from '../../os/lanes.ts';
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

/** One file of an upload. */
export interface UploadPart {
  /** As the client sent it. */
  readonly path: string;
  /** The reader owns the pieces. */
  readonly content: AsyncIterable<Buffer>;
  /** The same content, including moves that bypass JavaScript; used instead of `content`. Null if not available. */
  direct(): AsyncIterable<Buffer | Move> | null;
  /** Announced size in bytes, or null. */
  readonly length: number | null;
}

/** The same part with its content passed through `step`. */
export function mapContent(
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
  /** Replaces the metadata of every file. */
  readonly metadata: FileMetadata;
  /** Whether to fsync(2) files and directories before returning. */
  readonly durable: boolean;
  /** Whether files may be committed only after `parts` has ended: reading its end verifies a digest. */
  readonly verified: boolean;
  /** Aborts when the client disconnects. */
  readonly signal: AbortSignal;
  readonly shared: UploadResources;
}

/** Maximum number of overwrites waiting for the same file. */
const MAX_OVERWRITES = 1024;

/** Queues and limits that all uploads share. */
export interface UploadResources {
  readonly lanes: Lanes;
  /** Overwrites in progress, by device and inode. */
  readonly overwrites: KeyedQueues;
  /** Bytes kept in memory because the disk is full. */
  readonly memory: Allowance;
  /** Files that have been received and not committed. */
  readonly uncommitted: Allowance;
}

export function createUploadResources(lanes: Lanes): UploadResources {
  return {
    lanes,
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

/** A file that has been received and not committed. */
interface Received {
  readonly path: string;
  /** The resolved path. */
  readonly place: Place;
  readonly length: number | null;
  readonly file: AsyncDisposable;
  readonly commit: () => Promise<boolean>;
}

/**
 * Maximum number of uncommitted files, per upload and in total; beyond it they are committed early. Each holds two
 * descriptors, its own and its directory's.
 */
const MAX_UNCOMMITTED = 256;
const MAX_ALL_UNCOMMITTED = 2048;
const TOO_MANY_WITH_DIGEST = [
  'invalid_argument',
  `an upload with a digest can have at most ${MAX_UNCOMMITTED - 1} files: send several uploads`,
] as const;
const TOO_MANY_UNCOMMITTED = [
  'resource_exhausted',
  'too many uploads in progress: an upload with a digest cannot be received now, try again later',
] as const;

/**
 * Receives all parts, then commits them: an upload that is interrupted changes nothing, unless files were committed
 * early. Throws `invalid_argument` for a duplicate path (earlier parts are committed), a directory, invalid metadata or
 * too many files with a digest; `resource_exhausted`; `no_space`.
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
  /** How many of them are counted in `shared.uncommitted`. */
  #counted = 0;

  constructor(context: UploadContext) {
    this.#context = context;
  }

  /** Receives a part; false, without reading it, for a duplicate path. */
  async receive(part: UploadPart): Promise<boolean> {
    const path = resolvePath(part.path, this.#context.user, this.#context.defaultWorkdir);
    if (this.#paths.has(path)) return false;
    this.#paths.add(path);
    this.#received.push(await this.#explained(path, part.length, () => receive(path, part, this.#context)));
    if (this.#received.length >= MAX_UNCOMMITTED) await this.#commitEarly(TOO_MANY_WITH_DIGEST);
    else if (this.#context.shared.uncommitted.take(1)) this.#counted++;
    else await this.#commitEarly(TOO_MANY_UNCOMMITTED);
    return true;
  }

  /** Commits what was received; throws the given error if nothing may be committed before the end. */
  async #commitEarly([kind, message]: readonly [ErrorKind, string]): Promise<void> {
    if (this.#context.verified) throw new EnvdError(kind, message);
    await this.commit();
  }

  async commit(): Promise<void> {
    for (const { path, length, commit } of this.#received) {
      const carriesMetadata = await this.#explained(path, length, commit);
      const { values } = this.#context.metadata;
      const stored = carriesMetadata && Object.keys(values).length > 0 ? { metadata: values } : {};
      this.files.push({ path, name: basename(path), type: 'file', ...stored });
    }
    if (this.#context.durable) {
      const directories = await Promise.all(this.#received.map(({ place }) => place.directoryPath()));
      await syncDirectories(directories, this.#context.shared.lanes);
    }
    await this[Symbol.asyncDispose]();
  }

  async #explained<T>(path: string, length: number | null, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!isOutOfSpace(error)) throw explain(error, path, 'make');
      throw await noSpace(length, path, error, this.#context.shared.lanes);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const received = this.#received;
    this.#received = [];
    this.#context.shared.uncommitted.release(this.#counted);
    this.#counted = 0;
    await Promise.all(received.map(({ file }) => file[Symbol.asyncDispose]()));
    for (const { place } of received) place[Symbol.dispose]();
  }
}

async function receive(path: string, part: UploadPart, context: UploadContext): Promise<Received> {
  const place = await Place.open(path, true, context.shared.lanes);
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
  const { overwrites, memory } = context.shared;
  const exists = status !== null;

  if (!status || status.isFile()) await place.assertMayWrite(status);
  const fallback = { exists, length: part.length, memory };
  const incoming = status && !status.isFile() ? null : await IncomingFile.open(place, fallback);
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
