import type { FastifyReply } from 'fastify';

/** What a client that was refused may go on sending, so that it gets to read why: milliseconds, and bytes. */
const LINGER_MS = 5000;
const LINGER_BYTES = 16 * 1024 * 1024;
const LOOK_EVERY_MS = 100;

/**
 * Ends the connection a while after the answer, unless the client has sent the rest of its request by then: for callers
 * who have no right to be listened to. What comes until then is dropped.
 */
export function endUnlessComplete({ request: { raw: request }, raw: response }: FastifyReply): void {
  response.once('finish', () => {
    if (request.complete) return;
    const { socket } = request;
    const latest = performance.now() + LINGER_MS;
    const most = socket.bytesRead + LINGER_BYTES;
    const timer = setInterval(() => {
      if (performance.now() > latest || socket.bytesRead > most) request.destroy();
    }, LOOK_EVERY_MS);
    request.once('close', () => clearInterval(timer));
  });
}
