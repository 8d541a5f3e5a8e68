import type { FastifyInstance, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../../base/errors.ts';
import { Semaphore } from '../../../../base/semaphore.ts';
import type { FileServices } from '../../../services/files/file-services.ts';
import type { FileQuery } from '../../../services/files/signature.ts';
import { ignoreContentType } from '../../admission/requests.ts';
import { COMPOSE_LIMIT_BYTES } from '../../bodies/body-limits.ts';
import { JsonBodies } from '../../bodies/json-body.ts';
import type { ArchiveFormat, ArchiveUpload } from './archives.ts';
import type { ContentDigests } from './content-digests.ts';
import type { DownloadLimits } from './download-limits.ts';
import { sendDownload } from './download-response.ts';
import { ARCHIVE_QUERY, CALLER_QUERY, COMPOSE_REQUEST, downloadQuery, UPLOAD_QUERY } from './queries.ts';
import { changeOf } from './upload-change.ts';
import { isUpload, mediaTypeOf, metadataOf, unsupportedType, uploadedParts } from './upload-parts.ts';

/** One upload keeps about this many bytes in buffers, for the disk, a parser and a decoder. */
const UPLOAD_BYTES = 256 * 1024;
/** All uploads together may keep this many bytes more. An upload that finds room writes larger batches. */
const ROOM_BYTES = 32 * 1024 * 1024;

/** What extensions add to downloads and uploads. */
export interface FileExtensions {
  readonly formats: readonly ArchiveFormat[];
  readonly uploads: readonly ArchiveUpload[];
  readonly digests: ContentDigests | null;
}

/** Registers download and upload of files, and `/files/compose`, which concatenates files. */
export function fileRoutes(
  app: FastifyInstance,
  files: FileServices,
  downloads: DownloadLimits,
  extensions: FileExtensions,
): void {
  uploadRoute(app, files, extensions);
  downloadRoute(app, files, downloads, extensions);
  composeRoute(app, files);
}

function downloadRoute(
  app: FastifyInstance,
  files: FileServices,
  limits: DownloadLimits,
  { formats, digests }: FileExtensions,
): void {
  const DOWNLOAD_QUERY = downloadQuery(formats.map(({ name }) => name));
  app.route({
    method: ['GET', 'HEAD'],
    url: '/files',
    handler: async (request, reply) => {
      const caller = fileQueryOf(request);
      const operation = ARCHIVE_QUERY.read(request.query, '').format ? 'read-archive' : 'read';
      const path = files.resolve(files.admit(caller, operation), caller.path);
      request.call.isTrusted = true;
      request.call.subject = { path };
      const { format } = DOWNLOAD_QUERY.read(request.query, '');
      const archive = formats.find(({ name }) => name === format);
      if (archive) return archive.send(request, reply, { path: caller.path, target: path });
      return sendDownload(request, reply, await files.download(path), limits, digests);
    },
  });
}

function uploadRoute(app: FastifyInstance, files: FileServices, { uploads, digests }: FileExtensions): void {
  const archiveOf = (request: FastifyRequest) =>
    uploads.find(({ types }) => types.includes(mediaTypeOf(request)));
  const room = new Semaphore(ROOM_BYTES);
  const admit = (request: FastifyRequest) => {
    const caller = fileQueryOf(request);
    const user = files.admit(caller, archiveOf(request) ? 'write-archive' : 'write');
    request.call.isTrusted = true;
    const query = UPLOAD_QUERY.read(request.query, '');
    const change = changeOf(request.headers, query);
    return { path: caller.path, user, durable: query.durable, change };
  };
  app.route({
    method: 'POST',
    url: '/files',
    // This comes before Fastify's own check, which refuses malformed content types with errors of another shape.
    onRequest: async (request) => {
      if (isUpload(request) || archiveOf(request)) return;
      admit(request);
      throw unsupportedType(request);
    },
    handler: async (request, reply) => {
      const { durable, change, path, user } = admit(request);
      const target = files.resolve(user, path);
      // Without a path in the query, each part of a form names its own file.
      if (path !== '') request.call.subject = { path: target };
      const signal = request.call.transfer(UPLOAD_BYTES);
      request.call.askForBody();
      const check = digests?.check(request.headers) ?? null;
      const archive = archiveOf(request);
      if (archive) return await archive.receive(reply, { path, target, user, change, check, signal });
      const options = {
        metadata: metadataOf(request.raw),
        durable,
        change,
        verified: check !== null,
        signal,
      };
      return await files.upload(user, uploadedParts(request, path, room, check), options);
    },
  });
}

function composeRoute(app: FastifyInstance, files: FileServices): void {
  const bodies = new JsonBodies(COMPOSE_LIMIT_BYTES);
  app.post('/files/compose', { onRequest: ignoreContentType }, async (request) => {
    const body = await bodies.read(request.call);
    const { source_paths: sourcePaths, destination, username } = COMPOSE_REQUEST.read(body, '');
    return files.compose(username ?? '', { sourcePaths, destination }, request.call.signal);
  });
}

/** Throws for a query that Fastify could not decode and would pass on as it is: a file would get a wrong name. */
function requireDecodable(url: string): void {
  try {
    decodeURIComponent(url);
  } catch {
    throw new EnvdError('invalid_argument', 'the query must be UTF-8, with % encoded as %25');
  }
}

/** Returns the file that a request names, and what authorizes its caller. */
function fileQueryOf(request: FastifyRequest): FileQuery {
  requireDecodable(request.raw.url ?? '');
  const query = CALLER_QUERY.read(request.query, '');
  const { path = '', username = '', signature, signature_expiration: expiration } = query;
  const presentedToken = [request.headers['x-access-token']].flat()[0] || undefined;
  return { path, username, signature, expiration, presentedToken };
}
