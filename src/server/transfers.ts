import type { FastifyInstance } from 'fastify';
import type { Transfers } from '../base/tally.ts';

/**
 * Counts the answers to downloads and what was sent of them, heads and codings included: what comes from a file's
 * descriptor passes no code of ours that could count it.
 */
export function countDownloads(app: FastifyInstance, downloads: Transfers): void {
  app.addHook('onRequest', async (request, reply) => {
    const { socket } = request.raw;
    if (request.method !== 'GET' || request.routeOptions.url !== '/files') return;
    const before = socket.bytesWritten;
    reply.raw.once('close', () => {
      if (reply.raw.statusCode >= 300) return;
      downloads.count++;
      downloads.bytes += socket.bytesWritten - before;
    });
  });
}
