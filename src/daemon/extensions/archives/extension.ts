import { basename } from 'node:path';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Transfers } from '../../../base/tally.ts';
import type { Extension } from '../../http/extension.ts';
import { breakOff, sendArchive } from '../../http/rest/files/archive-response.ts';
import type { ArchivedDirectory, ArchiveTarget } from '../../http/rest/files/archives.ts';
import { dispositionOf } from '../../http/rest/files/content-headers.ts';
import type { EntrySource } from '../../services/files/entries/entry.ts';
import type { WriteGate } from '../../services/pause/write-gate.ts';
import { ARCHIVE_TYPES, receiveArchive } from './archive-upload.ts';
import { Archives } from './archives.ts';

interface ArchiveServices {
  readonly entries: EntrySource;
  readonly gate: WriteGate;
  /** Counts unpacked files and received bytes. */
  readonly uploads: Transfers;
}

const TYPES = { tar: 'application/x-tar', 'tar.gz': 'application/gzip' } as const;

/** Adds `GET /files?format=tar`, also compressed, and `POST /files` with an archive as the body. */
export function archivesExtension({ entries, gate, uploads }: ArchiveServices): Extension {
  const archives = new Archives(entries.lanes, gate);
  const formatOf = (name: keyof typeof TYPES) => ({
    name,
    send(request: FastifyRequest, reply: FastifyReply, { path, target }: ArchivedDirectory) {
      return sendArchive(request, reply, {
        headers: {
          'content-type': TYPES[name],
          'content-disposition': dispositionOf(`${basename(path) || 'root'}.${name}`),
        },
        isGzip: name === 'tar.gz',
        archive: archives.pack(target, (reason) => breakOff(reply, reason)),
      });
    },
  });
  const receive = (reply: FastifyReply, target: ArchiveTarget) =>
    receiveArchive(reply, target, async (source) => {
      const { target: path, user, signal } = target;
      const unpacked = await archives.unpack(path, user, counted(source, uploads), signal);
      uploads.count += unpacked.files;
      return { path, ...unpacked };
    });
  return {
    archives: {
      formats: [formatOf('tar'), formatOf('tar.gz')],
      uploads: { types: ARCHIVE_TYPES, receive },
    },
  };
}

async function* counted(pieces: AsyncIterable<Buffer>, uploads: Transfers): AsyncGenerator<Buffer> {
  for await (const piece of pieces) {
    uploads.bytes += piece.length;
    yield piece;
  }
}
