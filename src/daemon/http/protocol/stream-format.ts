import type { IncomingHttpHeaders } from 'node:http';
import type { Codec } from './codec.ts';
import type { EventStream } from './event-stream.ts';
import type { FrameSink } from './frame-batch.ts';

/** How the request, the messages and the end of a stream are written. */
export interface StreamFormat {
  /** That of the request message. */
  readonly codec: Codec;
  /** Headers of the response: names and values in turn. */
  readonly head: readonly string[];
  /** Whether an error before the first event is an answer of its own, with a status. */
  readonly hasStatus: boolean;
  /** The encoded request message in a body. Throws `invalid_argument` and `unimplemented`. */
  payloadOf(body: Buffer, headers: IncomingHttpHeaders): Buffer | Promise<Buffer>;
  add(stream: EventStream, event: unknown, batch: FrameSink): void;
  addKeepalive(stream: EventStream, batch: FrameSink): void;
  /** What ends a stream with this error, or without one: null. */
  endOf(error: unknown): Buffer;
}

/** A format that is served to those who ask for it. */
export interface OfferedFormat extends StreamFormat {
  isAskedBy(headers: IncomingHttpHeaders): boolean;
}
