import type { FastifyReply } from 'fastify';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import type { ArchiveTarget } from '../../http/rest/files/archives.ts';
import { bodyError, RequestBody } from '../../http/rest/files/body.ts';
import { mediaTypeOf, metadataOf } from '../../http/rest/files/upload-parts.ts';
import { REPLACE } from '../../services/files/entries/file-change.ts';

const TAR = 'application/x-tar';
const GZIP = 'application/gzip';

/** The content types of archives. */
export const ARCHIVE_TYPES = [TAR, GZIP];

/**
 * Passes the archive in the body of `reply`'s request to `unpack`, and then discards the rest. Throws `invalid_argument` for options
 * that do not apply to archives, and for a digest that does not match the body.
 */
export async function receiveArchive<T>(
  { request }: FastifyReply,
  { path, change, check }: ArchiveTarget,
  unpack: (source: AsyncIterable<Buffer>) => Promise<T>,
): Promise<T> {
  const type = mediaTypeOf(request);
  if (path === '') throw new EnvdError('invalid_argument', `path is required with ${type}`);
  if (Object.keys(metadataOf(request.raw)).length > 0)
    throw new EnvdError('invalid_argument', `metadata in headers cannot be used with ${type}`);
  if (change !== REPLACE)
    throw new EnvdError(
      'invalid_argument',
      `append, offset, mode and conditions cannot be used with ${type}`,
    );
  const body = new RequestBody(request.raw, check, type === GZIP);
  try {
    const unpacked = await unpack(piecesOf(body));
    await body.verify();
    return unpacked;
  } finally {
    body.drain();
  }
}

/**
 * Yields the pieces of the archive. A caller that stops early does not destroy the stream, which may be the request. As tar(1) does,
 * it ignores bytes after compressed content, because everything may have been unpacked by then.
 */
async function* piecesOf({ stream }: RequestBody): AsyncGenerator<Buffer> {
  let hasContent = false;
  try {
    for await (const piece of stream.iterator({ destroyOnReturn: false })) {
      hasContent = true;
      yield piece;
    }
  } catch (error) {
    if (!hasContent || !isTrailing(error)) throw bodyError(error);
  }
}

/** Returns whether zlib looked for a further member of the gzip file and found other bytes. */
function isTrailing(error: unknown): boolean {
  return messageOf(error) === 'incorrect header check';
}
