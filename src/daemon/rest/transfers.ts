import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Transfers } from '../../base/tally.ts';

/**
 * Counts the answers to downloads and what was sent of them, heads and codings included: what comes from a file's
 * descriptor passes no code of ours that could count it.
 */
export function countDownloads(app: FastifyInstance, downloads: Transfers): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (request.method === 'GET' && request.routeOptions.url === '/files')
      countOne(request, reply, downloads);
    done();
  });
}

function countOne(
  { raw: { socket } }: FastifyRequest,
  { raw: response }: FastifyReply,
  downloads: Transfers,
): void {
  const before = socket.bytesWritten;
  response.once('close', () => {
    if (response.statusCode >= 300) return;
    downloads.count++;
    downloads.bytes += socket.bytesWritten - before;
  });
}
