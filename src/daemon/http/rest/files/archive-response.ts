import { pipeline } from 'node:stream';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { sendStream } from './body-writer.ts';
import { codeStream, GZIP } from './compression.ts';

/** Breaks the connection of a client that does not read its download. */
export function breakOff(reply: FastifyReply, reason: Error): void {
  reply.log.warn({ err: reason }, 'download aborted');
  reply.raw.destroy();
}

export interface SentArchive {
  readonly headers: Readonly<Record<string, string>>;
  /** Whether the archive itself is to be compressed by gzip. */
  readonly isGzip: boolean;
  readonly archive: AsyncGenerator<Buffer>;
}

/** Sends a directory as an archive. Breaks the connection when the directory cannot be read completely. */
export async function sendArchive(
  request: FastifyRequest,
  reply: FastifyReply,
  { headers, isGzip, archive }: SentArchive,
): Promise<FastifyReply> {
  const { coding, chunks } = await codeStream(
    isGzip ? 'identity' : request.headers['accept-encoding'],
    archive,
  );
  const isCoded = coding === 'gzip';
  reply.headers({ ...headers, vary: 'Accept-Encoding', ...(isCoded && { 'content-encoding': coding }) });
  if (request.method === 'HEAD') {
    await archive.return(undefined);
    return reply.send();
  }
  return sendStream(reply, isCoded || isGzip ? pipeline(chunks, zlib.createGzip(GZIP), () => {}) : chunks);
}
