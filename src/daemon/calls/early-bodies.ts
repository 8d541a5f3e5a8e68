import type { IncomingMessage } from 'node:http';

interface Waiting {
  readonly request: IncomingMessage;
  readonly resolve: (body: Buffer | null) => void;
}

/**
 * Reads the bodies that have come with their heads, as small ones do, once for all requests of a turn of the event loop: half of
 * the CPU of a stream's events (docs/decisions/074-early-bodies.md).
 */
export class EarlyBodies {
  #waiting: Waiting[] = [];

  /**
   * Resolves in the next turn of the event loop with the whole body of `request`, or with null if it has not come by then; then
   * nothing of it has been read.
   */
  read(request: IncomingMessage): Promise<Buffer | null> {
    const { promise, resolve } = Promise.withResolvers<Buffer | null>();
    if (this.#waiting.push({ request, resolve }) === 1) setImmediate(this.#readAll);
    return promise;
  }

  readonly #readAll = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { request, resolve } of waiting) resolve(request.complete ? wholeOf(request) : null);
  };
}

function wholeOf(request: IncomingMessage): Buffer {
  const pieces: Buffer[] = [];
  // One piece at a time.
  while (request.readableLength > 0) pieces.push(request.read() as Buffer);
  return pieces.length === 1 && pieces[0] ? pieces[0] : Buffer.concat(pieces);
}
