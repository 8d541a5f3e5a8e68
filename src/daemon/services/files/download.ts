import { constants } from 'node:fs';
import { basename } from 'node:path';
import { EnvdError, isSystemError } from '../../../base/errors.ts';
import { fileTypeOf } from '../../linux/files/entries.ts';
import type { OpenFile } from '../../linux/files/open-file.ts';
import { PathHandle } from '../../linux/files/place.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { decodeName } from '../../linux/paths/names.ts';
import { explain, explaining } from '../../linux/system/errno.ts';
import { native } from '../../linux/system/native.ts';
import { type ByteRange, readChunk, readPieces } from './content.ts';
import { type FileVersion, modifiedOf, tagOf, versionOf } from './entries/file-change.ts';

/** A file of at most this many bytes is read completely and closed before the response begins. */
const SMALL_BYTES = 128 * 1024;

/** Describes the bytes of an open file from `start` up to, but not including, `end`. */
export interface FileRange {
  readonly file: OpenFile;
  readonly start: number;
  readonly end: number;
}

/** Owns a file that is open for download. Replacing its path does not change what is sent. */
export class Download implements AsyncDisposable {
  readonly path: string;
  readonly name: string;
  /** The size is in bytes. It is null if it is unknown before the end of file, as for large files in /proc. */
  readonly size: number | null;
  /** The modification time, or null for files that the kernel generates on each read. */
  readonly modified: Date | null;
  /** The strong validator (RFC 9110, section 8.8.1) without quotes. It is null when `modified` is. */
  readonly tag: string | null;
  readonly content: Buffer | OpenFile;

  constructor(path: string, status: FileVersion, content: Buffer | OpenFile) {
    this.path = path;
    this.name = basename(path);
    this.content = content;
    const known = status.size > 0 ? status.size : null;
    this.size = Buffer.isBuffer(content) ? content.length : known;
    const isVirtual = this.size !== status.size;
    this.modified = isVirtual ? null : modifiedOf(status);
    this.tag = isVirtual ? null : tagOf(status);
  }

  /** Returns the pieces in order, which are literal bytes or ranges of the file. */
  read(pieces: readonly (Buffer | ByteRange)[]): Buffer | AsyncGenerator<Buffer> {
    const content = this.content;
    if (!Buffer.isBuffer(content)) return readPieces(this.path, content, pieces);
    const bytes = pieces.map((piece) =>
      Buffer.isBuffer(piece) ? piece : content.subarray(piece.start, piece.end ?? undefined),
    );
    const [only] = bytes;
    return only && bytes.length === 1 ? only : Buffer.concat(bytes);
  }

  /** Returns the bytes from `start` to before `end`, or fewer, but at least one. Throws `aborted` if the file was truncated. */
  async readPart(start: number, end: number): Promise<Buffer> {
    const { content } = this;
    if (Buffer.isBuffer(content)) return content.subarray(start, end);
    const buffer = Buffer.allocUnsafeSlow(end - start);
    const length = await explaining(this.path, () => content.read(buffer, buffer.length, start));
    if (length === 0) throw new EnvdError('aborted', 'file was truncated while it was read');
    return buffer.subarray(0, length);
  }

  /** Returns the open file if `pieces` are one range of it with a known end, else null. The download still owns it. */
  rangeOf([only, ...others]: readonly (Buffer | ByteRange)[]): FileRange | null {
    const file = this.content;
    if (Buffer.isBuffer(file) || only === undefined || Buffer.isBuffer(only) || others.length > 0)
      return null;
    return only.end === null ? null : { file, start: only.start, end: only.end };
  }

  /** Tells whether the whole content has been read already. */
  get isSmall(): boolean {
    return Buffer.isBuffer(this.content);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!Buffer.isBuffer(this.content)) await this.content.close();
  }
}

/** Returns the file at an absolute path if it is small and in the page cache, or else null. Throws open(2)'s errors. */
function readCached(path: string): Download | null {
  const small = native.readSmallFile(decodeName(path), SMALL_BYTES);
  return small && new Download(path, { ...small, size: small.content.length }, small.content);
}

/**
 * Opens the file at an absolute path. Throws `not_found`. Throws `invalid_argument` for directories, and for pipes,
 * sockets and devices, because opening those may have side effects and reading them may block forever.
 */
export async function openDownload(path: string, lanes: Lanes): Promise<Download> {
  try {
    const cached = readCached(path);
    if (cached) return cached;
    using place = await PathHandle.open(path, true, lanes);
    // This check comes before the open, because opening a device or a pipe can have side effects.
    const status = await place.status();
    if (!status) throw missing(path);
    assertRegular(path, status.mode);
    return await openFile(path, place);
  } catch (error) {
    throw isSystemError(error, 'ENOENT', 'ENOTDIR') ? missing(path, error) : explain(error, path);
  }
}

function missing(path: string, cause?: unknown): EnvdError {
  return new EnvdError('not_found', `path '${path}' does not exist`, { cause });
}

/** Checks the type again. The file may have been replaced, for instance by a pipe, whose open(2) must not block. */
async function openFile(path: string, place: PathHandle): Promise<Download> {
  const file = await place.openFile(constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const found = await file.exactStat();
    assertRegular(path, Number(found.mode));
    const status = versionOf(found);
    const content = status.size > SMALL_BYTES ? null : await readSmall(file, status.size);
    if (content) await file.close();
    return new Download(path, status, content ?? file);
  } catch (error) {
    await file.close();
    throw error;
  }
}

/**
 * Returns the content of a file of this size, or null when it has more than `SMALL_BYTES`. Files of /proc have the size
 * 0, and those of /sys one that is too large.
 */
async function readSmall(file: OpenFile, size: number): Promise<Buffer | null> {
  const room = Buffer.allocUnsafeSlow(size || SMALL_BYTES + 1);
  let length = 0;
  for (let got = 1; got > 0 && length < room.length; length += got) {
    got = await readChunk(file, room.subarray(length), length);
  }
  return length > SMALL_BYTES ? null : room.subarray(0, length);
}

function assertRegular(path: string, mode: number): void {
  const kind = fileTypeOf(mode);
  if (kind === constants.S_IFDIR) throw new EnvdError('invalid_argument', `path '${path}' is a directory`);
  if (kind !== constants.S_IFREG)
    throw new EnvdError('invalid_argument', `path '${path}' is not a regular file`);
}
