import { basename } from 'node:path';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Extension } from '../../http/extension.ts';
import { breakOff, sendArchive } from '../../http/rest/files/archive-response.ts';
import type { ArchivedDirectory, ArchiveFormat } from '../../http/rest/files/archives.ts';
import { dispositionOf } from '../../http/rest/files/content-headers.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { ArchivePlaces } from '../../services/files/archive-places.ts';
import { membersBelow, ZipMemory } from './zip-tree.ts';

/** Smaller pieces are joined to this size, in bytes, because each write waits for the kernel. */
const JOINED_BYTES = 64 * 1024;

/** Adds `GET /files?format=zip`, which sends a directory to programs that do not read tar archives. */
export function createZip(lanes: Lanes): Extension {
  return { archives: { formats: [new ZipFormat(lanes)] } };
}

class ZipFormat implements ArchiveFormat {
  readonly name = 'zip';
  readonly #lanes: Lanes;
  readonly #places = new ArchivePlaces();
  readonly #memory = new ZipMemory();

  constructor(lanes: Lanes) {
    this.#lanes = lanes;
  }

  /** The members are stored without compression, because the coding of the response compresses them. */
  send(
    request: FastifyRequest,
    reply: FastifyReply,
    { path, target }: ArchivedDirectory,
  ): Promise<FastifyReply> {
    const name = `${basename(path) || 'root'}.zip`;
    return sendArchive(request, reply, {
      headers: {
        'content-type': 'application/zip',
        'content-disposition': dispositionOf(name).replace(/^inline/, 'attachment'),
      },
      isGzip: false,
      archive: this.#places.sending(this.#chunks(target), (reason) => breakOff(reply, reason)),
    });
  }

  async *#chunks(path: string): AsyncGenerator<Buffer> {
    const { makeZip } = await import('client-zip');
    const reader = makeZip(membersBelow(path, this.#memory, this.#lanes)).getReader();
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
