import multipart from '@fastify/multipart';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { Unread } from '../../../base/unread.ts';
import type { ComposeRequest } from '../../services/files/compose.ts';
import type { FileQuery, FileServices } from '../../services/files/services.ts';
import { LINGER } from '../auth.ts';
import { JsonBodies } from '../json-bodies.ts';
import { endUnlessComplete, ignoreContentType, withClientSignal } from '../requests.ts';
import { sendArchive } from './files/archive-response.ts';
import { isArchive, receiveArchive } from './files/archive-upload.ts';
import { announcedDigests } from './files/digests.ts';
import type { DownloadLimits } from './files/download-limits.ts';
import { sendDownload } from './files/download-response.ts';
import { MULTIPART_OPTIONS } from './files/multipart.ts';
import { UploadMemory } from './files/upload-memory.ts';
import { isUpload, metadataOf, unsupportedType, uploadSource } from './files/upload-parts.ts';

const COMPOSE_LIMITS = { bytes: 1024 * 1024, large: null, containers: 16 };

/** What transfers may take together. */
export interface FileLimits {
  readonly downloads: DownloadLimits;
  /** Bounds the requests that are being received and served. */
  readonly requests: Unread;
}

/** Registers download and upload of files, and `/files/compose`, which concatenates files. */
export function fileRoutes(app: FastifyInstance, files: FileServices, limits: FileLimits): void {
  app.register((scope, _options, done) => {
    scope.register(multipart, MULTIPART_OPTIONS);
    uploadRoute(scope, files, limits.requests);
    done();
  });
  downloadRoute(app, files, limits.downloads);
  composeRoute(app, files);
}

function downloadRoute(app: FastifyInstance, files: FileServices, limits: DownloadLimits): void {
  app.route({
    method: ['GET', 'HEAD'],
    url: '/files',
    handler: async (request, reply) => {
      const query = fileQuery(request);
      const user = files.admit(query, 'read');
      const format = parameter(request, 'format');
      if (format !== undefined)
        return sendArchive(request, reply, { format, ...query, chunks: files.pack(user, query.path) });
      return sendDownload(request, reply, await files.download(user, query.path), limits);
    },
  });
}

function uploadRoute(app: FastifyInstance, files: FileServices, requests: Unread): void {
  const admit = (request: FastifyRequest, reply: FastifyReply) => {
    try {
      return files.admit(fileQuery(request), 'write');
    } catch (error) {
      endUnlessComplete(request.raw, reply.raw, LINGER);
      throw error;
    }
  };
  app.route({
    method: 'POST',
    url: '/files',
    // Checked before Fastify does, which refuses malformed content types with errors of its own.
    onRequest: async (request, reply) => {
      if (isUpload(request) || isArchive(request)) return;
      admit(request, reply);
      throw unsupportedType(request);
    },
    handler: async (request, reply) => {
      const user = admit(request, reply);
      using _ = new UploadMemory(reply, requests);
      const { path } = fileQuery(request);
      if (isArchive(request)) {
        return await withClientSignal(reply, (signal) =>
          receiveArchive(reply, path, (source) => files.unpack(user, path, source, signal)),
        );
      }
      const options = {
        metadata: metadataOf(request.raw),
        durable: flag(request, 'durable'),
        verified: announcedDigests(request.headers).length > 0,
      };
      return await withClientSignal(reply, (signal) =>
        files.upload(user, uploadSource(reply, path), { ...options, signal }),
      );
    },
  });
}

function composeRoute(app: FastifyInstance, files: FileServices): void {
  const bodies = new JsonBodies(COMPOSE_LIMITS);
  app.post('/files/compose', { onRequest: ignoreContentType }, async (request, reply) => {
    const { username, ...wanted } = parseComposeRequest(await bodies.read(request.raw, reply.raw));
    return files.compose(username, wanted);
  });
}

function fileQuery(request: FastifyRequest): FileQuery {
  return {
    path: parameter(request, 'path') ?? '',
    username: parameter(request, 'username') ?? '',
    signature: parameter(request, 'signature'),
    expiration: parameter(request, 'signature_expiration'),
    presentedToken: [request.headers['x-access-token']].flat()[0] || undefined,
  };
}

/** The first value if the parameter repeats. */
function parameter(request: FastifyRequest, name: string): string | undefined {
  const value = (request.query as Readonly<Record<string, string | string[] | undefined>>)[name];
  return Array.isArray(value) ? value[0] : value;
}

/** Throws `invalid_argument` for anything but `true`, `false` and an absent parameter. */
function flag(request: FastifyRequest, name: string): boolean {
  const value = parameter(request, name) ?? 'false';
  if (value === 'true' || value === 'false') return value === 'true';
  throw new EnvdError('invalid_argument', `query parameter ${name} must be true or false, not '${value}'`);
}

function parseComposeRequest(body: unknown): ComposeRequest & { readonly username: string } {
  const members = Object(body) as Readonly<Record<string, unknown>>;
  const { source_paths: sources = [], destination = '', username = '' } = members;
  if (!Array.isArray(sources) || !sources.every((source) => typeof source === 'string' && source !== '')) {
    throw new EnvdError('invalid_argument', 'source_paths must be a list of paths');
  }
  if (typeof destination !== 'string') throw new EnvdError('invalid_argument', 'destination must be a path');
  if (typeof username !== 'string') throw new EnvdError('invalid_argument', 'username must be a string');
  return { sourcePaths: sources, destination, username };
}
