import type { IncomingMessage } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError, HttpError } from '../../../../base/errors.ts';
import type { Metadata } from '../../../services/files/metadata.ts';
import type { UploadPart } from '../../../services/files/upload.ts';
import { bytesOf, RequestBody } from './body.ts';
import { directBody } from './direct-body.ts';
import { type Part, partsOf } from './multipart.ts';

const RAW = 'application/octet-stream';
const MULTIPART = 'multipart/form-data';
/** PATH_MAX of linux/limits.h less the NUL, in bytes. */
const MAX_NAME = 4095;
/** In bytes: paths, names and metadata of all files of an upload, as JSON. */
const MAX_ANSWER = 4 * 1024 * 1024;

/** Whether the body is of a type that an upload can have. */
export function isUpload(request: FastifyRequest): boolean {
  const type = uploadType(request);
  return type === RAW || type === MULTIPART;
}

/** The error for a body of another type. */
export function unsupportedType(request: FastifyRequest): EnvdError {
  const message = `content type '${uploadType(request)}' is not supported: use ${MULTIPART} or ${RAW}`;
  return new EnvdError('invalid_argument', message);
}

function uploadType(request: FastifyRequest): string {
  const [type = ''] = (request.headers['content-type'] ?? '').split(';', 1);
  return type.trim().toLowerCase();
}

/**
 * The files of the request that `reply` answers, as they arrive; `path` from the query, empty when absent. Each must be read to its end
 * before the next is asked for. However it ends, the rest of the request is read and dropped. Throws at the end
 * when the body is not the one whose digest was announced.
 */
export async function* uploadParts(reply: FastifyReply, path: string): AsyncGenerator<UploadPart> {
  const { request } = reply;
  const body = new RequestBody(request.raw);
  try {
    if (uploadType(request) === RAW) yield rawPart(body, reply, path);
    else yield* multipartParts(request, body, path);
    await body.verify();
  } finally {
    body.drain();
  }
}

function rawPart(body: RequestBody, reply: FastifyReply, path: string): UploadPart {
  if (path === '') throw new EnvdError('invalid_argument', `path is required with ${RAW}`);
  const direct = () => (body.isPlain ? directBody(reply, body.length) : null);
  return { path, content: bytesOf(body.stream), direct, length: body.length };
}

async function* multipartParts(
  request: FastifyRequest,
  body: RequestBody,
  path: string,
): AsyncGenerator<UploadPart> {
  const answer = new AnswerSize(request);
  for await (const part of partsOf(request, body.stream)) {
    const { content } = part;
    const destination = destinationOf(part, path);
    if (destination === null) {
      part.skip();
      continue;
    }
    answer.add(destination);
    yield { path: destination, content, direct: () => null, length: null };
  }
}

/** Where a part goes, or null when it is no file to keep. Throws `invalid_argument` for a file without a usable name. */
function destinationOf({ name, fileName = '' }: Part, path: string): string | null {
  if (name !== 'file') return null;
  if (path !== '') return path;
  if (fileName === '') {
    const wish = 'give it one, or the request a path';
    throw new EnvdError('invalid_argument', `a part named 'file' has no file name: ${wish}`);
  }
  // As it was sent: the parser may have cut it off, and what is normalised later may be short.
  const length = Buffer.byteLength(fileName);
  if (length > MAX_NAME) {
    throw new EnvdError(
      'invalid_argument',
      `file name of a part is longer than ${MAX_NAME} bytes: ${length}`,
    );
  }
  // As browsers write it; all else is raw UTF-8.
  return fileName.replaceAll('%22', '"');
}

/** Ahead of a key, in the names of headers. */
const METADATA = 'x-metadata-';

/** What the `X-Metadata-<key>` headers say, keys in lower case and not empty; the first counts when one repeats. */
export function metadataOf(request: IncomingMessage): Metadata {
  const metadata = new Map<string, string>();
  for (const [name, [first = '']] of Object.entries(request.headersDistinct) as [string, string[]][]) {
    const key = name.startsWith(METADATA) ? name.slice(METADATA.length) : '';
    if (key !== '') metadata.set(key, first);
  }
  return Object.fromEntries(metadata);
}

/** Adds up what the answer to an upload takes, which is sent as a whole. */
class AnswerSize {
  readonly #each: number;
  #total = 0;

  constructor(request: FastifyRequest) {
    this.#each = JSON.stringify(metadataOf(request.raw)).length + 64;
  }

  /** Throws an error with the status 413 when the answer would be too large. */
  add(path: string): void {
    this.#total += this.#each + JSON.stringify(path).length * 2;
    if (this.#total <= MAX_ANSWER) return;
    throw new HttpError(
      413,
      `answer to this upload has more than ${MAX_ANSWER} bytes: send fewer files at once`,
    );
  }
}
