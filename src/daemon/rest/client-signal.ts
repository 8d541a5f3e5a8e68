import type { FastifyReply } from 'fastify';

/**
 * Runs `work` with a signal that aborts when the client goes away before it has its answer. (Fastify's own
 * `request.signal` aborts as soon as a request's body has been read.)
 */
export async function withClientSignal<T>(
  reply: FastifyReply,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const gone = new AbortController();
  const abort = () => gone.abort();
  reply.raw.once('close', abort);
  if (reply.raw.destroyed) abort();
  try {
    return await work(gone.signal);
  } finally {
    reply.raw.off('close', abort);
  }
}
