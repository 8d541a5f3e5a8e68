import type { FastifyReply, FastifyRequest } from 'fastify';
import { Negotiator } from 'negotiator';
import { onAbort } from '../../../base/abort.ts';
import type { StreamPlaces } from '../protocol/stream-places.ts';

const NDJSON = 'application/x-ndjson';
const EVENTS = 'text/event-stream';

/** A response of JSON objects, one in each line, or events of a page (`Accept: text/event-stream`), without an end. */
export class LineStream {
  readonly #response: FastifyReply['raw'];
  readonly #isEvents: boolean;

  /** Begins the response, which takes a place of a stream. Returns null for HEAD, which is answered. Throws as `StreamPlaces`. */
  static begin(request: FastifyRequest, reply: FastifyReply, places: StreamPlaces): LineStream | null {
    const { accept } = request.headers;
    const isEvents = new Negotiator({ headers: { accept } }).mediaTypes([NDJSON, EVENTS])[0] === EVENTS;
    reply.headers({
      'content-type': isEvents ? EVENTS : NDJSON,
      vary: 'Accept',
      'x-content-type-options': 'nosniff',
    });
    if (request.method === 'HEAD') {
      reply.send();
      return null;
    }
    places.enter(reply.raw);
    reply.hijack();
    reply.raw.writeHead(200, reply.getHeaders() as Record<string, string>).flushHeaders();
    onAbort(request.call.signal, () => reply.raw.end());
    return new LineStream(reply.raw, isEvents);
  }

  private constructor(response: FastifyReply['raw'], isEvents: boolean) {
    this.#response = response;
    this.#isEvents = isEvents;
  }

  /** Whether the kernel has taken everything so far. Otherwise a client that does not read should get no more. */
  get isIdle(): boolean {
    return this.#response.writableLength === 0 && !this.#response.writableEnded;
  }

  /** Sends JSON texts. */
  send(texts: readonly string[]): void {
    const line = (json: string) => (this.#isEvents ? `data: ${json}\n\n` : `${json}\n`);
    if (texts.length > 0) this.#response.write(texts.map(line).join(''));
  }

  /** Calls `listener` when the response is closed. */
  onClose(listener: () => void): void {
    this.#response.once('close', listener);
  }
}
