import { hash } from 'node:crypto';
import { type BigIntStats, constants } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Readable } from 'node:stream';
import { EnvdError, isSystemError } from '../../base/errors.ts';
import { type ByteRange, ContentStream } from './content-stream.ts';
import { type DigestAlgorithm, digestOf } from './digest.ts';
import { explain } from './errors.ts';

/** Up to this size, in bytes, a file is read at once, and its descriptor is closed before the answer begins. */
const SMALL = 128 * 1024;

/** One file, opened once: what is served stays this file when its path is replaced meanwhile. */
export class Download implements AsyncDisposable {
  readonly name: string;
  /** Bytes; null when only reading it to its end can tell, as with large files of /proc. */
  readonly size: number | null;
  /** Null for files that the kernel writes while they are read, which have no history. */
  readonly modified: Date | null;
  /** A strong validator, without quotes: another content has another one. Null as above. */
  readonly tag: string | null;
  readonly #content: Buffer | FileHandle;

  constructor(name: string, status: BigIntStats, content: Buffer | FileHandle) {
    this.name = name;
    this.#content = content;
    const known = status.size > 0n ? Number(status.size) : null;
    this.size = Buffer.isBuffer(content) ? content.length : known;
    const isVirtual = this.size !== Number(status.size);
    this.modified = isVirtual ? null : status.mtime;
    this.tag = isVirtual ? null : tagOf(status);
  }

  /** The pieces one after the other, literal bytes or ranges of the file; closes the download at its end. */
  read(pieces: readonly (Buffer | ByteRange)[]): Buffer | Readable {
    const content = this.#content;
    if (!Buffer.isBuffer(content)) return new ContentStream(content, pieces);
    const bytes = pieces.map((piece) =>
      Buffer.isBuffer(piece) ? piece : content.subarray(piece.start, piece.end ?? undefined),
    );
    const [only] = bytes;
    return only && bytes.length === 1 ? only : Buffer.concat(bytes);
  }

  /** Of the whole content, which is read for it; null when its length is not known. Throws `aborted` with `signal`. */
  async digest(algorithm: DigestAlgorithm, signal: AbortSignal): Promise<Buffer | null> {
    const content = this.#content;
    if (Buffer.isBuffer(content)) return hash(algorithm, content, 'buffer');
    return this.size === null ? null : digestOf(content, this.size, algorithm, signal);
  }

  /** Closes what was not read. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!Buffer.isBuffer(this.#content)) await this.#content.close();
  }
}

function tagOf({ mtimeNs, size, ino }: BigIntStats): string {
  return [mtimeNs, size, ino].map((number) => number.toString(36)).join('-');
}

/**
 * Opens the file at an absolute path. Throws `not_found`, and `invalid_argument` for a directory and for pipes,
 * sockets and devices: opening one of those can already have effects, and reading it may never end.
 */
export async function openDownload(path: string): Promise<Download> {
  try {
    assertRegular(path, await stat(path, { bigint: true }));
    // Non-blocking: a pipe may have taken the file's place by now, and some files of /proc wait for content.
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    return await describe(path, file);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) {
      throw new EnvdError('not_found', `path '${path}' does not exist`, { cause: error });
    }
    throw explain(error, path);
  }
}

/** Takes over the descriptor. */
async function describe(path: string, file: FileHandle): Promise<Download> {
  let served: Buffer | FileHandle | null = null;
  try {
    const status = await file.stat({ bigint: true });
    assertRegular(path, status);
    served = (status.size <= SMALL ? await readSmall(file, Number(status.size)) : null) ?? file;
    return new Download(basename(path), status, served);
  } finally {
    if (served !== file) await file.close();
  }
}

function assertRegular(path: string, status: BigIntStats): void {
  if (status.isDirectory()) throw new EnvdError('invalid_argument', `path '${path}' is a directory`);
  if (!status.isFile()) throw new EnvdError('invalid_argument', `path '${path}' is not a regular file`);
}

/**
 * The content of a file that claims `size` bytes. Files of /proc claim none and files of /sys too many: what
 * counts is what can be read. Null for one that claims none and has more than fits.
 */
async function readSmall(file: FileHandle, size: number): Promise<Buffer | null> {
  const buffer = Buffer.allocUnsafe(size > 0 ? size : SMALL);
  let length = 0;
  while (length < buffer.length) {
    const bytesRead = await readNow(file, buffer, length);
    if (bytesRead === 0) return buffer.subarray(0, length);
    length += bytesRead;
  }
  return size > 0 ? buffer : null;
}

/** Zero at the end, and where a read would wait for content that is still to come. */
async function readNow(file: FileHandle, buffer: Buffer, offset: number): Promise<number> {
  try {
    const { bytesRead } = await file.read(buffer, offset, buffer.length - offset, offset);
    return bytesRead;
  } catch (error) {
    if (isSystemError(error, 'EAGAIN')) return 0;
    throw error;
  }
}
