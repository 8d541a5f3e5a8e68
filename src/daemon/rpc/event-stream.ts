import type { DescMessage, DescMethodServerStreaming, MessageShape } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { onAbort } from '../../base/abort.ts';
import type { Feed } from '../../base/feed.ts';
import type { Codec } from './codec.ts';
import type { FrameBatch } from './frame-batch.ts';
import { keepaliveMsOf } from './request.ts';

/** What a call brings with it, beside its message. */
export interface StreamCall {
  readonly headers: Headers;
  /** Aborts when the client has gone, the call's deadline has passed, or the daemon stops. */
  readonly signal: AbortSignal;
  /** `Connect-Timeout-Ms`, or null. */
  readonly timeoutMs: number | null;
}

/** One of the long streams: opening it, and how its events become messages. */
export interface EventStream<Event, Input extends DescMessage, Output extends DescMessage> {
  readonly method: DescMethodServerStreaming<Input, Output>;
  /** JSON properties that the schema does not have: ignored, or refused. */
  readonly ignoreUnknownFields: boolean;
  /** Whether the timeout belongs to what the stream opens, instead of to the call. */
  readonly ownsTimeout: boolean;
  open(request: MessageShape<Input>, call: StreamCall): Promise<Feed<Event>>;
  message(event: Event): MessageShape<Output>;
  /** Adds the event as one frame to what goes out next. */
  addFrame(event: Event, codec: Codec, batch: FrameBatch): void;
  readonly keepalive: MessageShape<Output>;
}

interface BatchOptions {
  readonly keepaliveMs: number;
  /** The feed's own choice when it is missing. */
  readonly batchBytes?: number;
  readonly signal: AbortSignal;
}

/**
 * THE loop of every stream: each batch of events as soon as there is one, of about `batchBytes` when more has piled up;
 * after `keepaliveMs` without any, null for a keepalive. Ends with the feed; a client that goes away ends the reading
 * and nothing else.
 */
export async function* batches<Event>(
  feed: Feed<Event>,
  { keepaliveMs, batchBytes, signal }: BatchOptions,
): AsyncGenerator<readonly Event[] | null> {
  using _ = feed;
  using interruptions = new Interruptions(keepaliveMs, signal);
  let next = feed.next(batchBytes);
  for (;;) {
    const events = await interruptions.during(next);
    if (events === null) return;
    yield events === 'late' ? null : events;
    if (events !== 'late') next = feed.next(batchBytes);
  }
}

/** What cuts a wait short: one timer and one listener for all the waits of a stream, since those come in thousands. */
class Interruptions implements Disposable {
  readonly #timer: NodeJS.Timeout;
  readonly #signal: AbortSignal;
  readonly #forget: () => void;
  #late: () => void = () => {};
  #fail: (reason: unknown) => void = () => {};

  constructor(keepaliveMs: number, signal: AbortSignal) {
    this.#signal = signal;
    this.#timer = setTimeout(() => this.#late(), keepaliveMs);
    this.#forget = onAbort(signal, () => this.#fail(signal.reason));
  }

  /** What `promise` settles with, or `late` when that takes longer; throws the signal's reason when it aborts. */
  during<T>(promise: Promise<T>): Promise<T | 'late'> {
    const { promise: result, resolve, reject } = Promise.withResolvers<T | 'late'>();
    if (this.#signal.aborted) reject(this.#signal.reason);
    this.#timer.refresh();
    this.#late = () => resolve('late');
    this.#fail = reject;
    promise.then(resolve, reject);
    return result;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
    this.#forget();
  }
}

/** The stream as connect-node serves it, for the protocols that have no path of their own (gRPC-Web). */
export function viaConnect<Event, Input extends DescMessage, Output extends DescMessage>(
  stream: EventStream<Event, Input, Output>,
): (request: MessageShape<Input>, context: HandlerContext) => AsyncGenerator<MessageShape<Output>> {
  return async function* serve(request, context) {
    const { requestHeader: headers, signal } = context;
    const timeoutMs = context.timeoutMs() ?? null;
    const feed = await stream.open(request, { headers, signal, timeoutMs });
    const options = { keepaliveMs: keepaliveMsOf(headers), signal };
    for await (const events of batches(feed, options)) {
      if (events === null) yield stream.keepalive;
      else for (const event of events) yield stream.message(event);
    }
  };
}
