import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { AbortListener, AbortRelay } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { expectsContinue } from '../../../base/http/connections.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Kept, Unread } from '../../../base/unread.ts';

/** What all calls share. */
export interface SharedLimits {
  readonly shutdown: AbortRelay;
  /** Bounds the memory of requests that are being received and served. */
  readonly requests: Unread;
  /** Bounds output that clients have not read. */
  readonly unread: Unread;
}

/** Smaller requests are not counted: their sum is bounded by the number of connections. */
export const COUNTED_BYTES = 16 * 1024;

/** What an operation is about, for readers of the log. */
export interface Subject {
  readonly pid?: number;
  readonly path?: string;
}

/**
 * An operation, RPC or REST, from the head of its request to the end of its response. It is aborted when its client
 * disconnects, its deadline passes, the daemon stops, or requests take too much memory and this one has been idle
 * longest.
 */
export class CallScope implements Kept, AbortListener {
  index = -1;
  /** Method and path of the route. */
  readonly operation: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly shared: SharedLimits;
  /** By `monotonicMs`. */
  readonly started = monotonicMs();
  /** Kept here: Node takes it from a request that is destroyed. */
  readonly #socket: Socket;
  /** Bytes that the connection had sent before this call. */
  readonly #sentBefore: number;
  /** Whether its caller has the access token, or there is none. */
  isTrusted = false;
  /** The error that ended the operation. */
  failure: unknown = undefined;
  /** The Connect code of the error that ended an RPC. */
  rpcCode: string | undefined = undefined;
  /** The process or path that it is about, once known. */
  subject: Subject | null = null;
  /** Bytes that the kernel sent from a file, which Node does not count. */
  sentFromFile = 0;
  readonly #end: (call: CallScope) => void;
  #timer: NodeJS.Timeout | null = null;
  /** Created when the signal is first asked for. */
  #controller: AbortController | null = null;
  #aborted: { readonly reason: unknown } | null = null;
  #reject: (reason: unknown) => void = () => {};
  #isHeld = false;
  #isTransfer = false;
  #received = 0;

  /** `end` is called at the end of the response, also when the client disconnects. */
  constructor(
    { operation, request, response }: Pick<CallScope, 'operation' | 'request' | 'response'>,
    shared: SharedLimits,
    end: (call: CallScope) => void,
  ) {
    this.operation = operation;
    this.request = request;
    this.response = response;
    this.shared = shared;
    this.#socket = request.socket;
    this.#sentBefore = this.#socket.bytesWritten;
    this.#end = end;
    // Emitted in any case, also after a disconnect.
    response.on('close', this.#onClose);
  }

  /** Aborts the call after `milliseconds`, with `message` as its `deadline_exceeded`; null: no deadline. */
  expireAfter(milliseconds: number | null, message: string): void {
    if (milliseconds === null) return;
    const expire = () => this.abort(new EnvdError('deadline_exceeded', message));
    this.#timer = setTimeout(expire, milliseconds);
  }

  /** Aborts with the call. */
  get signal(): AbortSignal {
    this.#followShutdown();
    return this.#signal;
  }

  /**
   * Turns the call into a transfer, which keeps `bytes` in memory, and returns its signal. A stop does not abort it,
   * but gives it the time that responses get. When it is dropped its connection is closed, since only that ends a wait
   * for its body.
   */
  transfer(bytes: number): AbortSignal {
    this.#isTransfer = true;
    this.hold(bytes);
    return this.#signal;
  }

  get #signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#aborted.reason);
    }
    return this.#controller.signal;
  }

  get isAborted(): boolean {
    return this.#aborted !== null;
  }

  /** Throws the reason when the call has been aborted. */
  throwIfAborted(): void {
    if (this.#aborted) throw this.#aborted.reason;
  }

  /** Sends `100 Continue` to a client that waits for it. Call it before the body is read, once the caller may send one. */
  askForBody(): void {
    if (expectsContinue(this.request) && !this.response.headersSent) this.response.writeContinue();
  }

  /** Counts bytes of the request until the end of the call; 0: nothing is kept any longer. */
  hold(bytes: number): void {
    if (!this.#isHeld && bytes <= COUNTED_BYTES) return;
    const kept = this.#aborted ? 0 : bytes;
    this.#isHeld = kept > 0;
    this.shared.requests.set(this, kept, true);
  }

  /** The bytes of the response so far, with its head. */
  get sent(): number {
    return this.#socket.bytesWritten - this.#sentBefore + this.sentFromFile;
  }

  hasMoved(): boolean {
    const { bytesRead } = this.#socket;
    const moved = bytesRead !== this.#received;
    this.#received = bytesRead;
    return moved;
  }

  drop(reason: EnvdError): void {
    this.hold(0);
    if (this.#isTransfer) {
      this.failure = reason;
      this.response.destroy();
    } else this.abort(reason);
  }

  /** A promise that is rejected with the reason when the call is aborted. One at a time. */
  pending<T>(): PromiseWithResolvers<T> {
    this.#followShutdown();
    const pending = Promise.withResolvers<T>();
    this.#reject = pending.reject;
    if (this.#aborted) pending.reject(this.#aborted.reason);
    return pending;
  }

  /** Settles as `work` does, or throws the reason when the call is aborted. */
  race<T>(work: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = this.pending<T>();
    work.then(resolve, reject);
    return promise;
  }

  abort(reason: unknown): void {
    if (this.#aborted) return;
    this.#aborted = { reason };
    this.#controller?.abort(reason);
    this.#reject(reason);
  }

  /** The operation is done and its response is being sent: neither deadline nor stop apply any longer. */
  release(): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.shared.shutdown.remove(this);
    this.hold(0);
  }

  #followShutdown(): void {
    if (this.index < 0 && !this.#aborted) this.shared.shutdown.add(this);
  }

  readonly #onClose = () => {
    if (!this.response.writableFinished) this.abort(new EnvdError('aborted', 'client disconnected'));
    this.release();
    this.#end(this);
  };
}
