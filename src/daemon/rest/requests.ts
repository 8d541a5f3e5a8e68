import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance, FastifyReply } from 'fastify';

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

/** Lets the routes of `scope` take a request with any body, or with none under any content type, and drop it. */
export function ignoreBody(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, payload, parsed) => {
    payload.resume();
    parsed(null);
  });
}

/**
 * Nothing is read of a body before its handler asks for it, whatever its type: each knows what it may be, and who
 * sends it. What is left of it when the answer is out, Node reads and drops.
 */
export function leaveBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
}

/** What a client that was refused may go on sending, so that it gets to read why. */
export interface Linger {
  readonly milliseconds: number;
  readonly bytes: number;
}

const LOOK_EVERY_MS = 100;

/**
 * Ends the connection a while after the answer, unless the client has sent the rest of its request by then: for callers
 * who have no right to be listened to. What comes until then is dropped.
 */
export function endUnlessComplete(request: IncomingMessage, response: ServerResponse, linger: Linger): void {
  response.once('finish', () => {
    if (request.complete) return;
    const { socket } = request;
    const latest = performance.now() + linger.milliseconds;
    const most = socket.bytesRead + linger.bytes;
    const timer = setInterval(() => {
      if (request.complete) clearInterval(timer);
      else if (performance.now() > latest || socket.bytesRead > most) request.destroy();
    }, LOOK_EVERY_MS);
    request.once('close', () => clearInterval(timer));
  });
}
