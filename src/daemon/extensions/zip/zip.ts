import { basename } from 'node:path';
import { pipeline } from 'node:stream';
import zlib from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify';
import type { Extension } from '../../http/extension.ts';
import { FORMATS } from '../../http/json/queries.ts';
import { breakOff } from '../../http/rest/files/archive-response.ts';
import { sendStream } from '../../http/rest/files/body-writer.ts';
import { codeStream, GZIP } from '../../http/rest/files/compression.ts';
import { dispositionOf } from '../../http/rest/files/content-headers.ts';
import { fileQueryOf } from '../../http/rest/files.ts';
import type { EntrySource } from '../../services/files/entries/entry.ts';
import { FileServices, type FileSettings } from '../../services/files/file-services.ts';
import { ArchivePlaces } from '../../services/files/tar/archive-places.ts';
import type { Guest } from '../../services/guest/guest.ts';
import { ZIP_DOWNLOAD_QUERY } from './zip-query.ts';
import { membersBelow, ZipMemory } from './zip-tree.ts';

/** Smaller pieces are joined to this size, in bytes, because each write waits for the kernel. */
const JOINED_BYTES = 64 * 1024;

export interface ZipDependencies extends Pick<FileSettings, 'gate' | 'uploads'> {
  readonly guest: Guest;
  readonly entries: EntrySource;
}

/** Adds `GET /files?format=zip`, which sends a directory to programs that do not read tar archives. */
export function createZip({ guest, entries, gate, uploads }: ZipDependencies): Extension {
  const archives = new ZipArchives(entries, new FileServices(guest, { ...entries, gate, uploads }));
  return {
    addRoutes(app: FastifyInstance) {
      app.addHook('onRoute', (route) => {
        if (route.url === '/files' && methodsOf(route).includes('GET')) archives.addTo(route);
      });
    },
  };
}

function methodsOf({ method }: RouteOptions): string[] {
  return [method].flat();
}

class ZipArchives {
  readonly #entries: EntrySource;
  readonly #files: FileServices;
  readonly #places = new ArchivePlaces();
  readonly #memory = new ZipMemory();

  constructor(entries: EntrySource, files: FileServices) {
    this.#entries = entries;
    this.#files = files;
  }

  /** Serves the requests for this format, refuses unknown ones, and leaves the others to the route. */
  addTo(route: RouteOptions): void {
    const { handler } = route;
    const send = (request: FastifyRequest, reply: FastifyReply) => this.#send(request, reply);
    route.handler = function (request, reply) {
      const { format } = request.query as Readonly<Record<string, unknown>>;
      const isOthers = !format || FORMATS.some((known) => known === format);
      return isOthers ? handler.call(this, request, reply) : send(request, reply);
    };
  }

  async #send(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const caller = fileQueryOf(request);
    const path = this.#files.resolve(this.#files.admit(caller, 'read-archive'), caller.path);
    request.call.subject = { path };
    ZIP_DOWNLOAD_QUERY.read(request.query, '');
    const sending = this.#places.sending(this.#chunks(path), (reason) => breakOff(reply, reason));
    const { coding, chunks } = await codeStream(request.headers['accept-encoding'], sending);
    const name = `${basename(caller.path) || 'root'}.zip`;
    reply.headers({
      'content-type': 'application/zip',
      'content-disposition': dispositionOf(name).replace(/^inline/, 'attachment'),
      vary: 'Accept-Encoding',
      ...(coding === 'gzip' && { 'content-encoding': coding }),
    });
    if (request.method === 'HEAD') {
      await sending.return(undefined);
      return reply.send();
    }
    // The members are stored without compression, because the coding of the response compresses them.
    return sendStream(reply, coding === 'gzip' ? pipeline(chunks, zlib.createGzip(GZIP), () => {}) : chunks);
  }

  async *#chunks(path: string): AsyncGenerator<Buffer> {
    const { makeZip } = await import('client-zip');
    const reader = makeZip(membersBelow(path, this.#memory, this.#entries.lanes)).getReader();
    let pieces: Uint8Array[] = [];
    let length = 0;
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        pieces.push(next.value);
        length += next.value.length;
        if (length < JOINED_BYTES) continue;
        yield Buffer.concat(pieces);
        pieces = [];
        length = 0;
      }
      yield Buffer.concat(pieces);
    } finally {
      // This ends the walk, which rejects with the reason.
      await reader.cancel().catch(() => {});
    }
  }
}
