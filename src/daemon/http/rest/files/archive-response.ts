import { basename } from 'node:path';
import { pipeline } from 'node:stream';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ArchiveFormat } from '../../json/queries.ts';
import { sendStream } from './body-writer.ts';
import { codeStream, GZIP } from './compression.ts';
import { dispositionOf } from './content-headers.ts';

const TYPES: Readonly<Record<ArchiveFormat, string>> = {
  tar: 'application/x-tar',
  'tar.gz': 'application/gzip',
};

/** Breaks the connection of a client that does not read its download. */
export function breakOff(reply: FastifyReply, reason: Error): void {
  reply.log.warn({ err: reason }, 'download aborted');
  reply.raw.destroy();
}

/** Sends a directory as an archive. Breaks the connection when the directory cannot be read completely. */
export async function sendArchive(
  request: FastifyRequest,
  reply: FastifyReply,
  { format, path, archive }: { format: ArchiveFormat; path: string; archive: AsyncGenerator<Buffer> },
): Promise<FastifyReply> {
  const type = TYPES[format];
  const accepted = format === 'tar' ? request.headers['accept-encoding'] : 'identity';
  const { coding, chunks } = await codeStream(accepted, archive);
  reply.headers({
    'content-type': type,
    'content-disposition': dispositionOf(`${basename(path) || 'root'}.${format}`),
    vary: 'Accept-Encoding',
    ...(coding === 'gzip' && { 'content-encoding': coding }),
  });
  const isCompressed = coding === 'gzip' || format === 'tar.gz';
  if (request.method === 'HEAD') {
    await archive.return(undefined);
    return reply.send();
  }
  return sendStream(reply, isCompressed ? pipeline(chunks, zlib.createGzip(GZIP), () => {}) : chunks);
}
