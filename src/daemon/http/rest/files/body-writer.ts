import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import { endWith, freeBuffer } from '../../../../base/buffers.ts';
import { EnvdError } from '../../../../base/errors.ts';

/**
 * Sends `content` as the body, after the headers that were set, and frees its chunks. Throws when the first chunk cannot be read. A
 * later error destroys the connection, which shows the client that the body is incomplete.
 */
export async function sendStream(reply: FastifyReply, content: AsyncIterable<Buffer>): Promise<FastifyReply> {
  const pieces: AsyncIterator<Buffer> = content[Symbol.asyncIterator]();
  const first = await pieces.next();
  try {
    await sendBody(reply, async (write) => {
      for (let next = first; !next.done; next = await pieces.next()) await writeAndFree(write, next.value);
    });
  } finally {
    await pieces.return?.();
  }
  return reply;
}

/** Sends `body`, with its length and the headers that were set, without Fastify's hooks. */
export function sendWhole(reply: FastifyReply, body: Buffer): void {
  reply.hijack();
  const headers = { ...reply.getHeaders(), 'content-length': body.length };
  reply.raw.writeHead(reply.statusCode, headers as OutgoingHttpHeaders);
  endWith(reply.raw, body);
}

/** Writes a piece and resolves when the kernel has taken it. */
export type Write = (piece: Buffer) => Promise<void>;

/** Sends the head, and the body that `send` writes. An error destroys the connection. */
export async function sendBody(reply: FastifyReply, send: (write: Write) => Promise<void>): Promise<void> {
  reply.hijack();
  const response = reply.raw;
  response.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders);
  try {
    await send(writerOf(response));
    response.end();
  } catch (error) {
    if (!response.destroyed) reply.log.warn({ err: error }, 'download aborted');
    response.destroy();
  }
}

/** Writes a piece, and then frees its memory. */
export async function writeAndFree(write: Write, piece: Buffer): Promise<void> {
  await write(piece);
  freeBuffer(piece);
}

/**
 * Returns a function that writes a piece. The function throws `aborted` when the client disconnects, because Node may never call
 * back for a write in progress when its connection is destroyed.
 */
function writerOf(response: ServerResponse): Write {
  let fail: (reason: Error) => void = () => {};
  response.once('close', () => fail(new EnvdError('aborted', 'client disconnected')));
  return (piece) =>
    new Promise((resolve, reject) => {
      fail = reject;
      response.write(piece, (error) => (error ? reject(error) : resolve()));
    });
}
