import type { DescMessage, DescMethodServerStreaming, MessageShape } from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { untilAborted } from '../../../base/abort.ts';
import type { Feed, Taken } from '../../../base/feed.ts';
import type { Subject } from '../admission/subject.ts';
import type { Codec } from './codec.ts';
import { NODE_CALL } from './connect-node.ts';
import type { FrameBatch } from './frame-batch.ts';
import { keepaliveMsOf, type RequestHeaders } from './request.ts';

/** Size of a batch for connect-node, in bytes. */
const BATCH_BYTES = 128 * 1024;

/** The context of a streaming call. */
export interface StreamCall {
  readonly headers: RequestHeaders;
  /** Aborts when the client disconnects, the deadline passes or the daemon stops. */
  readonly abortSignal: () => AbortSignal;
  /** Throws the reason when the call has been aborted; costs less than the signal. */
  readonly throwIfAborted: () => void;
  /** `Connect-Timeout-Ms`, or null. */
  readonly timeoutMs: number | null;
  /** Names the process or path of the call, for the log. */
  about?(subject: Subject): void;
}

/** A server-streaming RPC: opens a feed of events and converts events to messages. */
export interface EventStream<Event, Input extends DescMessage, Output extends DescMessage> {
  readonly method: DescMethodServerStreaming<Input, Output>;
  /** Whether unknown JSON properties are ignored or refused. */
  readonly ignoreUnknownFields: boolean;
  /** Whether `open` applies the timeout itself (Start: to the process); otherwise it ends the stream. */
  readonly ownsTimeout: boolean;
  open(request: MessageShape<Input>, call: StreamCall): Promise<Feed<Event>>;
  message(event: Event): MessageShape<Output>;
  /** Adds the event to `batch` as one frame. */
  addFrame(event: Event, codec: Codec, batch: FrameBatch): void;
  /** Whether the stream ends with this event. */
  isLast(event: Event): boolean;
  readonly keepalive: MessageShape<Output>;
}

interface BatchOptions {
  readonly keepaliveMs: number;
  readonly batchBytes: () => number;
  /** Settles as `work` does, or throws the reason when the call is aborted. */
  readonly race: <T>(work: Promise<T>) => Promise<T>;
}

/**
 * Takes events from a feed in batches of about `batchBytes()`, and asks for a keepalive after `keepaliveMs` without events.
 * Disposes of the feed, which does not affect its source.
 */
export class Batches<Event> implements Disposable {
  readonly #feed: Feed<Event>;
  readonly #options: BatchOptions;
  #keepalive: Keepalive | null = null;
  /** What is waited for since before a keepalive. */
  #pending: Promise<Taken<Event>> | null = null;

  constructor(feed: Feed<Event>, options: BatchOptions) {
    this.#feed = feed;
    this.#options = options;
  }

  /**
   * The next events, null after the last, `late` for a keepalive; a promise only when it has to wait. Throws the reason
   * when the call is aborted.
   */
  next(): Taken<Event> | Promise<Taken<Event> | 'late'> {
    const taken = this.#pending ?? this.#feed.next(this.#options.batchBytes());
    return taken instanceof Promise ? this.#wait(taken) : taken;
  }

  async #wait(taken: Promise<Taken<Event>>): Promise<Taken<Event> | 'late'> {
    const { race, keepaliveMs } = this.#options;
    this.#pending = taken;
    this.#keepalive ??= new Keepalive(keepaliveMs);
    const events = await race(this.#keepalive.during(taken));
    if (events !== 'late') this.#pending = null;
    return events;
  }

  [Symbol.dispose](): void {
    this.#keepalive?.[Symbol.dispose]();
    this.#feed[Symbol.dispose]();
  }
}

/** Interrupts waits by a timeout. One timer serves all waits of a stream. */
class Keepalive implements Disposable {
  readonly #timer: NodeJS.Timeout;
  #late: () => void = () => {};

  constructor(milliseconds: number) {
    this.#timer = setTimeout(() => this.#late(), milliseconds);
  }

  /** Settles as `promise` does, or with `late` after the timeout. */
  during<T>(promise: Promise<T>): Promise<T | 'late'> {
    const { promise: result, resolve, reject } = Promise.withResolvers<T | 'late'>();
    this.#timer.refresh();
    this.#late = () => resolve('late');
    promise.then(resolve, reject);
    return result;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}

/** The implementation of the stream for connect-node, which serves the other protocols (gRPC-Web). */
export function viaConnect<Event, Input extends DescMessage, Output extends DescMessage>(
  stream: EventStream<Event, Input, Output>,
): (request: MessageShape<Input>, context: HandlerContext) => AsyncGenerator<MessageShape<Output>> {
  return async function* serve(request, context) {
    const { requestHeader: headers, signal } = context;
    const timeoutMs = context.timeoutMs() ?? null;
    const call = context.values.get(NODE_CALL);
    const about = (subject: Subject) => {
      if (call) call.scope.subject = subject;
    };
    const abort = { abortSignal: () => signal, throwIfAborted: () => signal.throwIfAborted() };
    const feed = await stream.open(request, { headers, ...abort, timeoutMs, about });
    const sending = call?.sending;
    sending?.onStall(() => feed.stalled?.());
    const race = <T>(work: Promise<T>) => untilAborted(work, signal);
    const options = { keepaliveMs: keepaliveMsOf(headers), batchBytes: () => BATCH_BYTES, race };
    using taking = new Batches(feed, options);
    for (let events = await taking.next(); events !== null; events = await taking.next()) {
      sending?.wait(BATCH_BYTES);
      if (events === 'late') yield stream.keepalive;
      else for (const event of events) yield stream.message(event);
      sending?.taken();
    }
  };
}
