import { pipeline } from 'node:stream';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { sendStream } from './body-writer.ts';
import { GZIP } from './download-response.ts';

/** Breaks the connection of a client that does not read its download. */
export function breakOff(reply: FastifyReply, reason: Error): void {
  reply.log.warn({ err: reason }, 'download aborted');
  reply.raw.destroy();
}

export interface SentArchive {
  readonly headers: Readonly<Record<string, string>>;
  /** The coding of the response. */
  readonly coding: string;
  /** Whether the archive itself is to be compressed by gzip. */
  readonly isGzip: boolean;
  readonly chunks: AsyncGenerator<Buffer>;
}

/** Sends a directory as an archive. Breaks the connection when the directory cannot be read completely. */
export async function sendArchive(
  { method }: FastifyRequest,
  reply: FastifyReply,
  { headers, coding, isGzip, chunks }: SentArchive,
): Promise<FastifyReply> {
  const isCoded = coding === 'gzip';
  reply.headers({ ...headers, vary: 'Accept-Encoding', ...(isCoded && { 'content-encoding': coding }) });
  if (method === 'HEAD') {
    // Reading the first chunk gives a HEAD the same status as a GET.
    await chunks.next();
    await chunks.return(undefined);
    return reply.send();
  }
  return sendStream(reply, isCoded || isGzip ? pipeline(chunks, zlib.createGzip(GZIP), () => {}) : chunks);
}
