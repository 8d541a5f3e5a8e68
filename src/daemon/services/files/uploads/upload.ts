import { basename } from 'node:path';
import { EnvdError, type ErrorKind } from '../../../../base/errors.ts';
import { debug } from '../../../../base/program/debug.ts';
import { resolvePath } from '../../../linux/paths/paths.ts';
import { type MetadataValues, validateMetadata } from '../entries/metadata.ts';
import type { FileContext } from './context.ts';
import { syncDirectories } from './durability.ts';
import { ReceivedFile } from './received-file.ts';

/** Describes one file of an upload. */
export interface UploadPart {
  /** As the client sent it. */
  readonly path: string;
  /** The announced size in bytes, or null. */
  readonly length: number | null;
  /** The whole content, in batches that belong to the reader. */
  readonly content: AsyncIterable<Buffer[]>;
}

export interface UploadContext extends FileContext {
  readonly defaultWorkdir: string | null;
  /** If this is true, files may be committed only after the last part has been received, which verifies a digest. */
  readonly verified: boolean;
}

export interface UploadedFile {
  readonly path: string;
  readonly name: string;
  readonly type: 'file';
  readonly metadata?: MetadataValues;
}

/**
 * An upload has at most this many uncommitted files. Beyond this limit, and that of all uploads together, they are
 * committed early. Each holds two descriptors, its own and its directory's.
 */
const MAX_UNCOMMITTED = 256;
const TOO_MANY_WITH_DIGEST = [
  'invalid_argument',
  `an upload with a digest can have at most ${MAX_UNCOMMITTED - 1} files: send several uploads`,
] as const;
const TOO_MANY_UNCOMMITTED = [
  'resource_exhausted',
  'too many uploads in progress: an upload with a digest cannot be received now, try again later',
] as const;

/**
 * Receives all files, then commits them. So an upload that is interrupted changes nothing, unless files were committed
 * early. Throws `invalid_argument` for a duplicate path (earlier files are committed), a directory, invalid metadata or
 * too many files with a digest, `resource_exhausted`, `no_space`, and `unavailable` while the file system is frozen.
 */
export async function upload(
  parts: AsyncIterable<UploadPart>,
  context: UploadContext,
): Promise<UploadedFile[]> {
  validateMetadata(context.metadata);
  context.shared.gate.assertOpen();
  const batch = new UploadBatch(context);
  try {
    for await (const part of parts) await batch.receive(part);
    await batch.commit();
    context.shared.tally.count += batch.committed.length;
    debug('files', 'files uploaded', () => ({ files: batch.committed.length, durable: context.durable }));
    return batch.committed;
  } finally {
    await batch[Symbol.asyncDispose]();
  }
}

class UploadBatch implements AsyncDisposable {
  readonly committed: UploadedFile[] = [];
  readonly #context: UploadContext;
  readonly #paths = new Set<string>();
  #received: ReceivedFile[] = [];
  /** This many of them are counted in `shared.uncommitted`. */
  #counted = 0;

  constructor(context: UploadContext) {
    this.#context = context;
  }

  async receive(part: UploadPart): Promise<void> {
    const path = resolvePath(part.path, this.#context.user, this.#context.defaultWorkdir);
    if (this.#paths.has(path)) return this.#refuse(part.path);
    this.#paths.add(path);
    // Of several files, all are staged before the first is committed.
    await this.#received.at(-1)?.stage();
    const file = new ReceivedFile(path, part.length, this.#context);
    this.#received.push(file);
    for await (const pieces of part.content) await file.write(pieces);
    if (this.#paths.size > 1) await file.stage();
    if (this.#received.length >= MAX_UNCOMMITTED) await this.#commitEarly(TOO_MANY_WITH_DIGEST);
    else if (this.#context.shared.uncommitted.take(1)) this.#counted++;
    else await this.#commitEarly(TOO_MANY_UNCOMMITTED);
  }

  /** Commits the files that were received before a duplicate, and throws. */
  async #refuse(path: string): Promise<never> {
    if (!this.#context.verified) await this.commit();
    throw new EnvdError('invalid_argument', `path was sent more than once: '${path}'`);
  }

  /** Commits what was received. If nothing may be committed before the end, it throws the given error. */
  async #commitEarly([kind, message]: readonly [ErrorKind, string]): Promise<void> {
    if (this.#context.verified) throw new EnvdError(kind, message);
    await this.commit();
  }

  async commit(): Promise<void> {
    const { values } = this.#context.metadata;
    const stored = Object.keys(values).length > 0 ? { metadata: values } : {};
    for (const file of this.#received) {
      const carriesMetadata = await file.commit();
      const { path } = file;
      this.committed.push({ path, name: basename(path), type: 'file', ...(carriesMetadata && stored) });
    }
    if (this.#context.durable) {
      const directories = await Promise.all(this.#received.map((file) => file.directoryPath()));
      await syncDirectories(directories, this.#context.shared.lanes);
    }
    await this[Symbol.asyncDispose]();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const received = this.#received;
    this.#received = [];
    this.#context.shared.uncommitted.release(this.#counted);
    this.#counted = 0;
    await Promise.all(received.map((file) => file[Symbol.asyncDispose]()));
  }
}
