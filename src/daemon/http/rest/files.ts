import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Allowance } from '../../../base/allowance.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { FileServices } from '../../services/files/file-services.ts';
import type { FileQuery } from '../../services/files/signature.ts';
import { ignoreContentType } from '../admission/requests.ts';
import { JsonBodies } from '../json/json-bodies.ts';
import {
  ARCHIVE_QUERY,
  CALLER_QUERY,
  COMPOSE_REQUEST,
  DOWNLOAD_QUERY,
  UPLOAD_QUERY,
} from '../json/queries.ts';
import { breakOff, sendArchive } from './files/archive-response.ts';
import { isArchive, receiveArchive } from './files/archive-upload.ts';
import { announcedDigests } from './files/digests.ts';
import type { DownloadLimits } from './files/download-limits.ts';
import { sendDownload } from './files/download-response.ts';
import { changeOf } from './files/upload-change.ts';
import { isUpload, metadataOf, unsupportedType, uploadedParts } from './files/upload-parts.ts';

const COMPOSE_LIMITS = { bytes: 1024 * 1024, large: null, containers: 16 };

/** One upload keeps about so many bytes in buffers, for the disk, a parser and a decoder. */
const UPLOAD_BYTES = 256 * 1024;
/** All uploads together may keep so many bytes more. An upload that finds room writes larger batches. */
const ROOM_BYTES = 32 * 1024 * 1024;

/** Registers download and upload of files, and `/files/compose`, which concatenates files. */
export function fileRoutes(app: FastifyInstance, files: FileServices, downloads: DownloadLimits): void {
  uploadRoute(app, files);
  downloadRoute(app, files, downloads);
  composeRoute(app, files);
}

function downloadRoute(app: FastifyInstance, files: FileServices, limits: DownloadLimits): void {
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
      if (format !== null) {
        const chunks = files.pack(path, (reason) => breakOff(reply, reason));
        return sendArchive(request, reply, { format, path: caller.path, archive: chunks });
      }
      return sendDownload(request, reply, await files.download(path), limits);
    },
  });
}

function uploadRoute(app: FastifyInstance, files: FileServices): void {
  const room = new Allowance(ROOM_BYTES);
  const admit = (request: FastifyRequest) => {
    const caller = fileQueryOf(request);
    const user = files.admit(caller, isArchive(request) ? 'write-archive' : 'write');
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
      if (isUpload(request) || isArchive(request)) return;
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
      if (isArchive(request))
        return await receiveArchive(reply, path, change, (source) =>
          files.unpack(target, user, source, signal),
        );
      const options = {
        metadata: metadataOf(request.raw),
        durable,
        change,
        verified: announcedDigests(request.headers).length > 0,
        signal,
      };
      return await files.upload(user, uploadedParts(request, path, room), options);
    },
  });
}

function composeRoute(app: FastifyInstance, files: FileServices): void {
  const bodies = new JsonBodies(COMPOSE_LIMITS);
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
export function fileQueryOf(request: FastifyRequest): FileQuery {
  requireDecodable(request.raw.url ?? '');
  const query = CALLER_QUERY.read(request.query, '');
  const { path = '', username = '', signature, signature_expiration: expiration } = query;
  const presentedToken = [request.headers['x-access-token']].flat()[0] || undefined;
  return { path, username, signature, expiration, presentedToken };
}
