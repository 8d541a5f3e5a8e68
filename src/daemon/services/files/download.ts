import { hash } from 'node:crypto';
import { constants } from 'node:fs';
import { basename } from 'node:path';
import type { Readable } from 'node:stream';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { explain } from '../../os/errno.ts';
import { native } from '../../os/native.ts';
import type { OpenFile } from '../../os/open-file.ts';
import { Place } from '../../os/place.ts';
import { type ByteRange, ContentStream } from './content-stream.ts';
import { type DigestAlgorithm, digestOf } from './digest.ts';

/** Up to this size, in bytes, a file is read at once, and its descriptor is closed before the answer begins. */
const SMALL = 128 * 1024;

/** What tells one content of a file from another. */
interface Status {
  readonly size: number;
  readonly inode: bigint;
  /** Nanoseconds since the epoch. */
  readonly modifiedNs: bigint;
}

/** One file, opened once: what is served stays this file when its path is replaced meanwhile. */
export class Download implements AsyncDisposable {
  readonly name: string;
  /** Bytes; null when only reading it to its end can tell, as with large files of /proc. */
  readonly size: number | null;
  /** Null for files that the kernel writes while they are read, which have no history. */
  readonly modified: Date | null;
  /** A strong validator, without quotes: another content has another one. Null as above. */
  readonly tag: string | null;
  readonly #content: Buffer | OpenFile;

  constructor(name: string, status: Status, content: Buffer | OpenFile) {
    this.name = name;
    this.#content = content;
    const known = status.size > 0 ? status.size : null;
    this.size = Buffer.isBuffer(content) ? content.length : known;
    const isVirtual = this.size !== status.size;
    this.modified = isVirtual ? null : new Date(Number(status.modifiedNs / 1_000_000n));
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

function tagOf({ modifiedNs, size, inode }: Status): string {
  return [modifiedNs, size, inode].map((number) => number.toString(36)).join('-');
}

/**
 * Opens the file at an absolute path. Throws `not_found`, and `invalid_argument` for a directory and for pipes,
 * sockets and devices: opening one of those can already have effects, and reading it may never end.
 */
export async function openDownload(path: string): Promise<Download> {
  try {
    const small = await native.readSmallFile(path, SMALL);
    assertRegular(path, small.mode);
    return small.content ? new Download(basename(path), small, small.content) : await openLarge(path);
  } catch (error) {
    if (isSystemError(error, 'ENOENT', 'ENOTDIR')) {
      throw new EnvdError('not_found', `path '${path}' does not exist`, { cause: error });
    }
    throw explain(error, path);
  }
}

/** Whatever has taken the place of the file that was looked at: also a pipe, which must not hold the daemon up. */
async function openLarge(path: string): Promise<Download> {
  using place = await Place.open(path, true);
  const file = await place.openFile(constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const { mode, size, ino, mtimeNs } = await file.exactStat();
    assertRegular(path, Number(mode));
    return new Download(basename(path), { size: Number(size), inode: ino, modifiedNs: mtimeNs }, file);
  } catch (error) {
    await file.close();
    throw error;
  }
}

function assertRegular(path: string, mode: number): void {
  const kind = mode & constants.S_IFMT;
  if (kind === constants.S_IFDIR) throw new EnvdError('invalid_argument', `path '${path}' is a directory`);
  if (kind !== constants.S_IFREG)
    throw new EnvdError('invalid_argument', `path '${path}' is not a regular file`);
}
