import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import type { FastifyReply } from 'fastify';
import { giveBack } from '../../../../base/buffers.ts';

/**
 * Sends `content`, of which nobody else may use the pieces, as the body of an answer whose headers have been set.
 * Throws when not even the first piece can be had; later, a failure ends the connection, so that nobody takes what
 * was sent for the whole.
 */
export async function sendStream(reply: FastifyReply, content: Readable): Promise<FastifyReply> {
  const pieces: AsyncIterator<Buffer> = content[Symbol.asyncIterator]();
  const first = await pieces.next();
  reply.hijack();
  const response = reply.raw;
  response.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders);
  try {
    for (let next = first; !next.done; next = await pieces.next()) {
      await write(response, next.value);
      giveBack(next.value);
    }
    response.end();
  } catch (error) {
    if (!response.destroyed) reply.log.warn({ err: error }, 'download broke off');
    response.destroy();
  } finally {
    await pieces.return?.();
  }
  return reply;
}

/** Resolves when the piece has left the process. */
function write(response: ServerResponse, piece: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    response.write(piece, (error) => (error ? reject(error) : resolve()));
  });
}
