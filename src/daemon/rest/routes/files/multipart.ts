import type { Readable } from 'node:stream';
import type { MultipartFile } from '@fastify/multipart';
import type { FastifyRequest } from 'fastify';

/** Pieces of this size, in bytes, are kept before the network is told to wait. */
const HIGH_WATER_MARK = 256 * 1024;

/**
 * Every part is a stream, so that none is collected in memory, and there are no limits: whoever may upload may
 * fill the disk. File names keep their directories.
 */
export const MULTIPART_OPTIONS = {
  limits: { parts: Number.POSITIVE_INFINITY, fileSize: Number.POSITIVE_INFINITY },
  throwFileSizeLimit: false,
  preservePath: true,
  isPartAFile: () => true,
  fileHwm: HIGH_WATER_MARK,
  highWaterMark: HIGH_WATER_MARK,
};

/** The parts of a multipart body, `body` being the request's own or decoded from it. */
export function multipartOf(request: FastifyRequest, body: Readable): AsyncIterable<MultipartFile> {
  if (body === request.raw) return request.parts() as AsyncIterable<MultipartFile>;
  // The plugin reads `raw` of what it is called on, and looks for the boundary in its headers.
  const raw = Object.assign(body, { headers: request.raw.headers });
  const view: FastifyRequest = Object.create(request, { raw: { value: raw } });
  return view.parts() as AsyncIterable<MultipartFile>;
}

/** The file name as the client meant it: browsers write `"` as `%22`, all else as raw UTF-8. */
export function fileNameOf(part: MultipartFile): string {
  return (part.filename ?? '').replaceAll('%22', '"');
}
