import type { IncomingMessage } from 'node:http';
import type { FastifyRequest } from 'fastify';
import { EnvdError, HttpError } from '../../../../base/errors.ts';
import type { Semaphore } from '../../../../base/semaphore.ts';
import { requirePathLength } from '../../../linux/paths/paths.ts';
import type { MetadataValues } from '../../../services/files/entries/metadata.ts';
import type { UploadPart } from '../../../services/files/uploads/upload.ts';
import { ContentBatches } from './batches.ts';
import { RequestBody } from './body.ts';
import type { BodyCheck } from './content-digests.ts';
import { type Part, partsOf } from './multipart.ts';

const RAW = 'application/octet-stream';
const MULTIPART = 'multipart/form-data';
/** Parts with this name are stored as files. */
const FILE = 'file';
/** An error shows this many other names, and this many characters of each. */
const [MOST_SHOWN, LONGEST_SHOWN] = [10, 100];
/** The response to an upload, which has paths, names and metadata of all its files as JSON, may have this many bytes. */
const MAX_RESPONSE = 4 * 1024 * 1024;

/** Returns whether the content type is one of those accepted for uploads, apart from archives. */
export function isUpload(request: FastifyRequest): boolean {
  const type = mediaTypeOf(request);
  return type === RAW || type === MULTIPART;
}

/** Returns the error for another content type. */
export function unsupportedType(request: FastifyRequest): EnvdError {
  const message = `content type '${mediaTypeOf(request)}' is not supported: use ${MULTIPART} or ${RAW}`;
  return new EnvdError('invalid_argument', message);
}

/** Returns the Content-Type without parameters, in lower case; it is empty when absent. */
export function mediaTypeOf({ headers }: FastifyRequest): string {
  const [type = ''] = (headers['content-type'] ?? '').split(';', 1);
  return type.trim().toLowerCase();
}

/**
 * Yields the files in the body of a request, one after the other, and then discards the rest of the body. `path` comes from the query,
 * and is empty when absent; for `room` see `ContentBatches`. Throws after the last file what `check` throws.
 */
export async function* uploadedParts(
  request: FastifyRequest,
  path: string,
  room: Semaphore,
  check: BodyCheck | null,
): AsyncGenerator<UploadPart> {
  const body = new RequestBody(request.raw, check);
  try {
    if (mediaTypeOf(request) === RAW) yield rawPart(body, path, room);
    else yield* formFiles(request, body, path, room);
    await body.verify();
  } finally {
    body.drain();
  }
}

function rawPart({ stream, length }: RequestBody, path: string, room: Semaphore): UploadPart {
  if (path === '') throw new EnvdError('invalid_argument', `path is required with ${RAW}`);
  return { path, length, content: new ContentBatches(stream, room) };
}

async function* formFiles(
  request: FastifyRequest,
  { stream }: RequestBody,
  path: string,
  room: Semaphore,
): AsyncGenerator<UploadPart> {
  const countResponse = responseCounter(request);
  const names = new Set<string>();
  for await (const part of partsOf(stream, request.headers['content-type'] ?? '')) {
    names.add((part.name ?? '').slice(0, LONGEST_SHOWN));
    const destination = destinationOf(part, path);
    if (destination === null) continue;
    countResponse(destination);
    yield { path: destination, length: null, content: new ContentBatches(part.content, room) };
  }
  if (!names.has(FILE)) throw new EnvdError('invalid_argument', withoutFile([...names]));
}

function withoutFile(names: readonly string[]): string {
  const shown = names.slice(0, MOST_SHOWN).map((name) => `'${name}'`);
  const more = names.length > shown.length ? ` and ${names.length - shown.length} more` : '';
  const found = names.length === 0 ? 'is empty' : `has ${shown.join(', ')}${more}`;
  return `form has no part named '${FILE}', which is the content: it ${found}`;
}

/** Returns the path for a part; null: the part is not stored. Throws `invalid_argument` for an unusable file name. */
function destinationOf({ name, fileName = '' }: Part, path: string): string | null {
  if (name !== FILE) return null;
  if (path !== '') return path;
  if (fileName === '') {
    const advice = 'add one, or the query parameter path';
    throw new EnvdError('invalid_argument', `a part named 'file' has no file name: ${advice}`);
  }
  // This comes before the normalization, which may shorten a name that the parser has truncated.
  requirePathLength(fileName, 'file name of a part');
  // The parser replaces bytes that are not UTF-8, so the file would get a wrong name.
  if (fileName.includes('\ufffd')) {
    const advice = 'send such bytes as the characters U+EF80 to U+EFFF, or the query parameter path';
    throw new EnvdError('invalid_argument', `file name of a part is not UTF-8: '${fileName}': ${advice}`);
  }
  // Browsers encode only quotes, and send other characters as UTF-8.
  return fileName.replaceAll('%22', '"');
}

const METADATA = 'x-metadata-';

/** Returns the metadata in `X-Metadata-<key>` headers, with keys in lower case. Of a repeated key, the first value counts. */
export function metadataOf(request: IncomingMessage): MetadataValues {
  // Most requests have no metadata, and Node creates `headersDistinct` on demand.
  if (!Object.keys(request.headers).some((name) => name.startsWith(METADATA))) return {};
  const metadata = new Map<string, string>();
  for (const [name, [first = '']] of Object.entries(request.headersDistinct) as [string, string[]][]) {
    const key = name.startsWith(METADATA) ? name.slice(METADATA.length) : '';
    if (key !== '') metadata.set(key, first);
  }
  return Object.fromEntries(metadata);
}

/**
 * Returns a function that counts the response to an upload, which is built in memory, file by file. The function throws an error with
 * status 413 when the response would be too large.
 */
function responseCounter(request: FastifyRequest): (path: string) => void {
  const each = JSON.stringify(metadataOf(request.raw)).length + 64;
  let total = 0;
  return (path) => {
    total += each + JSON.stringify(path).length * 2;
    if (total <= MAX_RESPONSE) return;
    const text = `response to this upload would exceed ${MAX_RESPONSE} bytes: send fewer files per request`;
    throw new HttpError(413, text);
  };
}
