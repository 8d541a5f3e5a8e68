import type { IncomingHttpHeaders } from 'node:http';
import type { DescMessage, DescMethodServerStreaming, MessageShape } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import type { Feed, Taken } from '../../../base/feed.ts';
import type { CallScope } from '../admission/call-scope.ts';
import type { Codec } from './codec.ts';
import { failedCall, nodeCallOf } from './connect-node.ts';
import type { FrameSink } from './frame-batch.ts';
import { keepaliveMsOf } from './request.ts';

/** connect-node gets batches of about this many bytes. */
const BATCH_BYTES = 128 * 1024;

/** A server-streaming RPC. It opens a feed of events and converts events to messages. */
export interface EventStream<
  Event = unknown,
  Input extends DescMessage = DescMessage,
  Output extends DescMessage = DescMessage,
> {
  readonly method: DescMethodServerStreaming<Input, Output>;
  /** Whether unknown JSON properties are ignored or refused. */
  readonly ignoreUnknownFields: boolean;
  /** Whether `open` applies the timeout itself, as Start does to the process. Otherwise the timeout ends the stream. */
  readonly ownsTimeout: boolean;
  /** Opens the feed. `timeoutMs` is the timeout of the request; null: there is none. */
  open(request: MessageShape<Input>, call: CallScope, timeoutMs: number | null): Promise<Feed<Event>>;
  message(event: Event): MessageShape<Output>;
  addFrame(event: Event, codec: Codec, batch: FrameSink): void;
  /** Returns whether the stream ends with this event. */
  isLast(event: Event): boolean;
  readonly keepalive: MessageShape<Output>;
}

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

/**
 * Takes events from a feed in batches of about `batchBytes()`, and asks for a keepalive after an interval without events. When it
 * is disposed of, it disposes of the feed, whose source continues.
 */
export class EventBatches<Event> implements Disposable {
  readonly #feed: Feed<Event>;
  readonly #call: CallScope;
  readonly #batchBytes: () => number;
  /** The events that were being waited for when a keepalive became due. */
  #pending: Promise<Taken<Event>> | null = null;
  /** All waits of the stream share this timer. */
  #timer: NodeJS.Timeout | null = null;
  #late: () => void = () => {};

  constructor(feed: Feed<Event>, call: CallScope, batchBytes: () => number) {
    this.#feed = feed;
    this.#call = call;
    this.#batchBytes = batchBytes;
  }

  /**
   * Returns the next events, null after the last one, or `late` when a keepalive is due. Returns a promise only when it has to
   * wait. Throws the reason when the call is aborted.
   */
  next(): Taken<Event> | Promise<Taken<Event> | 'late'> {
    this.#call.throwIfAborted();
    const taken = this.#pending ?? this.#feed.next(this.#batchBytes());
    return taken instanceof Promise ? this.#wait(taken) : taken;
  }

  async #wait(taken: Promise<Taken<Event>>): Promise<Taken<Event> | 'late'> {
    const { promise, resolve, reject } = this.#call.pending<Taken<Event> | 'late'>();
    this.#pending = taken;
    this.#late = () => resolve('late');
    if (this.#timer) this.#timer.refresh();
    else this.#timer = setTimeout(() => this.#late(), keepaliveMsOf(this.#call.request.headers));
    taken.then(resolve, reject);
    const events = await promise;
    if (events !== 'late') this.#pending = null;
    return events;
  }

  [Symbol.dispose](): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#feed[Symbol.dispose]();
  }
}

/** Yields the messages of a stream for connect-node, which serves the other protocols. */
export async function* messagesOf(
  stream: EventStream,
  request: MessageShape<DescMessage>,
  context: HandlerContext,
): AsyncGenerator<MessageShape<DescMessage>> {
  const call = nodeCallOf(context);
  const { scope, sending } = call;
  try {
    const feed = await stream.open(request, scope, context.timeoutMs() ?? null);
    using taking = new EventBatches(feed, scope, () => BATCH_BYTES);
    sending.onStall(() => feed.stalled?.());
    for (let events = await taking.next(); events !== null; events = await taking.next()) {
      sending.wait(BATCH_BYTES);
      if (events === 'late') yield stream.keepalive;
      else for (const event of events) yield stream.message(event);
      sending.taken();
    }
  } catch (error) {
    throw failedCall(call, error);
  }
}
