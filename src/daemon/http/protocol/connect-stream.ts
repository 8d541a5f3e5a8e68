import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import { EnvdError, messageOf } from '../../../base/errors.ts';
import type { Feed } from '../../../base/feed.ts';
import type { Quota } from '../../../base/quota.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { endOfStreamJson, sendRpcError } from '../admission/errors.ts';
import { DECOMPRESSED_LIMIT_BYTES, messageTooLong, REQUEST_LIMIT_BYTES } from '../bodies/body-limits.ts';
import { readBody } from '../bodies/read-body.ts';
import {
  COMPRESSED_FLAG,
  type Codec,
  decodeMessage,
  END_STREAM_FLAG,
  ENVELOPE_BYTES,
  encodeFrame,
  frameOf,
} from './codec.ts';
import type { OfferedFormat, StreamFormat } from './event-stream.ts';
import { EventBatches, type EventStream, messagesOf } from './event-stream.ts';
import { FrameBatch } from './frame-batch.ts';
import { timeoutOf } from './request.ts';
import type { Rpc } from './rpc.ts';
import { UnsentBytes } from './unsent-bytes.ts';

/**
 * About this many bytes of output go into one write, because large writes take less CPU per byte. A batch of JSON is smaller, so
 * that it fits into the CPU cache when it is copied.
 */
const BATCH_BYTES: Record<Codec, number> = { binary: 1024 * 1024, json: 128 * 1024 };
/** Batches are this small while clients leave much unread. */
const SMALL_BATCH_BYTES = 32 * 1024;

const CONTENT_TYPE = /^application\/connect\+(json|proto) *(?:;.*)?$/i;

/** Returns the codec of a streaming request in the Connect protocol; null for any other content type. */
export function streamCodecOf(contentType: string): Codec | null {
  const type = CONTENT_TYPE.exec(contentType)?.[1]?.toLowerCase();
  return type === undefined ? null : type === 'json' ? 'json' : 'binary';
}

const CONNECT: Readonly<Record<Codec, StreamFormat>> = {
  json: connectFormat('json'),
  binary: connectFormat('binary'),
};

function connectFormat(codec: Codec): StreamFormat {
  const type = `application/connect+${codec === 'json' ? 'json' : 'proto'}`;
  return {
    codec,
    head: ['content-type', type, 'connect-accept-encoding', 'gzip'],
    hasStatus: false,
    payloadOf: (body, headers) => unwrap(body, headers['connect-content-encoding']),
    add: (stream, event, batch) => stream.addFrame(event, codec, batch),
    addKeepalive: ({ method, keepalive }, batch) => batch.add(encodeFrame(method.output, keepalive, codec)),
    endOf: endOfStream,
  };
}

/** A batch of frames, and what it was encoded from. */
interface Encoded {
  readonly stream: unknown;
  readonly events: unknown;
  readonly batch: FrameBatch;
  readonly isLast: boolean;
}

/** Serves all event streams, in the Connect protocol and in other formats. They share encoded batches and buffers. */
export class StreamServer {
  readonly #spare: FrameBatch[] = [];
  /** The batches that were encoded last. All readers of a process take the same array of events, which is encoded once. */
  readonly #recent = new Map<StreamFormat, Encoded>();
  readonly #unread: Quota;
  readonly #others: readonly OfferedFormat[];

  /** `unread` limits the bytes of all streams that the kernel has not taken yet. `others` are formats besides Connect's. */
  constructor(unread: Quota, others: readonly OfferedFormat[] = []) {
    this.#unread = unread;
    this.#others = others;
  }

  rpc(stream: EventStream): Rpc {
    const { method, ignoreUnknownFields } = stream;
    return {
      method,
      serve: (call, codec) => this.serve(stream, call, codec),
      serveOther: (call) => {
        const format = this.#others.find((one) => one.isAskedBy(call.request.headers));
        return format ? this.#serve(stream, call, format) : null;
      },
      register: (router) =>
        router.rpc(method, (request, context) => messagesOf(stream, request, context), {
          jsonOptions: { ignoreUnknownFields },
        }),
    };
  }

  /** Serves a stream in the Connect protocol. Resolves with the error that ended the stream, or null. */
  serve(stream: EventStream, call: CallScope, codec: Codec): Promise<unknown> {
    return this.#serve(stream, call, CONNECT[codec]);
  }

  /** Drops all buffers that are not being sent, to keep them out of a snapshot. */
  dropBuffers(): void {
    for (const { batch } of this.#recent.values()) batch.release();
    this.#recent.clear();
    this.#spare.length = 0;
  }

  /**
   * Serves a stream. Encodes each event once for all readers, writes queued events together, and takes further events from the
   * feed only when the kernel has taken the previous batch. Resolves with the error that ended the stream, or null.
   */
  async #serve(stream: EventStream, call: CallScope, format: StreamFormat): Promise<unknown> {
    const { response } = call;
    call.askForBody();
    if (!format.hasStatus) response.writeHead(200, [...format.head]);
    const sending = new UnsentBytes(response, this.#unread);
    const error = await this.#pump(stream, call, format, sending).then(
      () => null,
      (reason: unknown) => sending.dropped ?? reason ?? new EnvdError('internal', 'stream failed'),
    );
    if (!response.destroyed && !response.headersSent) sendRpcError(response, error);
    else if (!response.destroyed && !response.writableEnded) response.end(format.endOf(error));
    call.release();
    return error;
  }

  async #pump(
    stream: EventStream,
    call: CallScope,
    format: StreamFormat,
    sending: UnsentBytes,
  ): Promise<void> {
    const { response } = call;
    const feed = await open(stream, call, format);
    call.hold(0);
    if (format.hasStatus && !response.destroyed) response.writeHead(200, [...format.head]);
    sending.onStall(() => feed.stalled?.());
    const batchBytes = () => (this.#unread.isScarce ? SMALL_BATCH_BYTES : BATCH_BYTES[format.codec]);
    using taking = new EventBatches(feed, call, batchBytes);
    // The loop awaits each batch, so that the readers of a process take turns and share the encoded batch.
    for (let events = await taking.next(); events !== null; events = await taking.next()) {
      const { batch, isLast } = this.#encode(stream, events, format);
      const sent = batch.send(response, isLast);
      if (sent === null) continue;
      sending.wait(response.writableLength);
      await call.race(sent);
      sending.taken();
    }
  }

  /** Encodes events; `late` stands for a keepalive. The last batch includes the end of the stream, which saves a write. */
  #encode(stream: EventStream, events: readonly unknown[] | 'late', format: StreamFormat): Encoded {
    const last = this.#recent.get(format);
    if (last?.stream === stream && last.events === events) return last;
    const batch = FrameBatch.take(this.#spare);
    if (events === 'late') format.addKeepalive(stream, batch);
    else for (const event of events) format.add(stream, event, batch);
    const final = events === 'late' ? undefined : events.at(-1);
    const isLast = final !== undefined && stream.isLast(final);
    if (isLast) batch.add(format.endOf(null));
    batch.hold();
    last?.batch.release();
    const encoded = { stream, events, batch, isLast };
    this.#recent.set(format, encoded);
    return encoded;
  }
}

/** Opens the feed that a request asks for. Keeps nothing of the request, which may have megabytes. */
async function open(stream: EventStream, call: CallScope, format: StreamFormat): Promise<Feed<unknown>> {
  const { headers } = call.request;
  const { codec } = format;
  const timeoutMs = timeoutOf(headers);
  const limitMs = stream.ownsTimeout ? null : timeoutMs;
  call.expireAfter(limitMs, `stream exceeded its timeout of ${limitMs} ms`);
  const body = await readBody(call, REQUEST_LIMIT_BYTES[codec], messageTooLong);
  const payload = await format.payloadOf(body, headers);
  const message = decodeMessage(stream.method.input, payload, codec, stream.ignoreUnknownFields);
  return stream.open(message, call, timeoutMs);
}

/** Returns the single message of the request, decompressed. */
async function unwrap(body: Buffer, encoding: string | string[] | undefined): Promise<Buffer> {
  const length = body.length >= ENVELOPE_BYTES ? body.readUInt32BE(1) : -1;
  if (body.length !== ENVELOPE_BYTES + length) {
    throw new EnvdError(
      'invalid_argument',
      `request must be one enveloped message: the length in its envelope does not match a body of ${body.length} bytes`,
    );
  }
  const payload = body.subarray(ENVELOPE_BYTES);
  if (((body[0] ?? 0) & COMPRESSED_FLAG) === 0) return payload;
  if (encoding !== 'gzip') {
    const text = `unknown compression '${encoding ?? ''}': use gzip or none`;
    throw new EnvdError('unimplemented', text);
  }
  try {
    return await promisify(gunzip)(payload, { maxOutputLength: DECOMPRESSED_LIMIT_BYTES });
  } catch (error) {
    if (error instanceof RangeError) throw messageTooLong(DECOMPRESSED_LIMIT_BYTES);
    const text = `cannot decompress request: ${messageOf(error)}`;
    throw new EnvdError('invalid_argument', text, { cause: error });
  }
}

/** Returns the frame that ends a stream. `error` is null if there was none. */
export function endOfStream(error: unknown): Buffer {
  return frameOf(END_STREAM_FLAG, Buffer.from(endOfStreamJson(error)));
}
