import type { MultipartFile } from '@fastify/multipart';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../../base/errors.ts';
import type { UploadPart } from '../../../services/files/upload.ts';
import { bodyError, bytesOf, RequestBody } from './body.ts';
import { directBody } from './direct-body.ts';
import { fileNameOf, multipartOf } from './multipart.ts';

const RAW = 'application/octet-stream';
const MULTIPART = 'multipart/form-data';

/** Throws `invalid_argument` unless the body is one that an upload can have. */
export function assertUploadType(request: FastifyRequest): void {
  const type = uploadType(request);
  if (type === RAW || type === MULTIPART) return;
  throw new EnvdError(
    'invalid_argument',
    `content type '${type}' is not supported: use ${MULTIPART} or ${RAW}`,
  );
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
  if (!request.isMultipart()) throw new EnvdError('invalid_argument', 'request has no body');
  const parts = multipartOf(request, body.stream)[Symbol.asyncIterator]();
  for (;;) {
    const { value: part, done } = await parts.next().catch((error) => Promise.reject(bodyError(error)));
    if (done) return;
    const destination = destinationOf(part, path);
    if (destination === null) part.file.resume();
    else yield { path: destination, content: bytesOf(part.file), direct: () => null, length: null };
  }
}

/** Where a part goes, or null when it is no file to keep. */
function destinationOf(part: MultipartFile, path: string): string | null {
  if (part.fieldname !== 'file') return null;
  return path || fileNameOf(part) || null;
}
