import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { AbortListener, AbortRelay } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';
import { expectsContinue } from '../../../base/http/connections.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Kept, Quota } from '../../../base/quota.ts';
import { endUnlessComplete } from './linger.ts';

/** The limits that all calls share. */
export interface SharedLimits {
  readonly shutdown: AbortRelay;
  /** Limits the memory of requests that are being received and served. */
  readonly requests: Quota;
  /** Limits the output that clients have not read. */
  readonly unread: Quota;
}

/** Smaller requests are not counted, because the limit of connections limits their sum. */
export const COUNTED_BYTES = 16 * 1024;

/** The process or path that an operation is about, for readers of the log. */
export interface Subject {
  readonly pid?: number;
  readonly path?: string;
}

/**
 * An operation, RPC or REST, from the head of its request to the end of its response. It is aborted when its client disconnects,
 * when its deadline passes, when the daemon stops, and when requests take too much memory and this one has been idle longest.
 */
export class CallScope implements Kept, AbortListener {
  index = -1;
  /** Method and path of the route. */
  readonly operation: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly shared: SharedLimits;
  readonly started = monotonicMs();
  /** The connection is kept here, because Node removes it from a destroyed request. */
  readonly #socket: Socket;
  /** Bytes that the connection had sent before this call. */
  readonly #sentBefore: number;
  /** Whether the access token stands behind the call: shown, or in a signature. An open guest trusts all but preflights. */
  isTrusted = false;
  /** Whether the connection of the request carries another protocol now. */
  isUpgraded = false;
  /** The error that ended the operation. */
  failure: unknown = undefined;
  /** The Connect code of the error that ended an RPC. */
  rpcCode: string | undefined = undefined;
  subject: Subject | null = null;
  /** Bytes that the kernel sent from a file, which Node does not count. */
  sentFromFile = 0;
  readonly #end: (call: CallScope) => void;
  #timer: NodeJS.Timeout | null = null;
  /** The controller is created when a caller first asks for the signal. */
  #controller: AbortController | null = null;
  #aborted: { readonly reason: unknown } | null = null;
  #reject: (reason: unknown) => void = () => {};
  #held = 0;
  #isHeld = false;
  #isTransfer = false;
  #received = 0;

  /** `end` is called at the end of the response, and when the client disconnects before. */
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
    // Node always emits this, also after a disconnect.
    response.on('close', this.#onClose);
  }

  /** Aborts the call after `milliseconds` with `deadline_exceeded` and this message; null: there is no deadline. */
  expireAfter(milliseconds: number | null, message: string): void {
    if (milliseconds === null) return;
    const expire = () => this.abort(new EnvdError('deadline_exceeded', message));
    this.#timer = setTimeout(expire, milliseconds);
  }

  get signal(): AbortSignal {
    this.#followShutdown();
    return this.#signal;
  }

  /**
   * Turns the call into a transfer, which keeps `bytes` in memory, and returns its signal. A stop of the daemon does not abort a
   * transfer, but waits for it as for other responses. Dropping a transfer closes its connection, because only that ends a wait
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

  /** Sends `100 Continue` to a client that waits for it. It must be called before the body is read, after authorization. */
  askForBody(): void {
    if (expectsContinue(this.request) && !this.response.headersSent) this.response.writeContinue();
  }

  /** Counts the bytes that are kept for the call, until its end; 0: none any longer. */
  hold(bytes: number): void {
    this.#held = bytes;
    if (!this.#isHeld && bytes <= COUNTED_BYTES) return;
    const kept = this.#aborted ? 0 : bytes;
    this.#isHeld = kept > 0;
    this.shared.requests.set(this, kept, true);
  }

  /** Counts this many bytes besides those that are kept already. */
  holdMore(bytes: number): void {
    this.hold(this.#held + bytes);
  }

  /** The bytes of the response that were sent, including its head. */
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

  /** Returns a promise that rejects with the reason when the call is aborted. A call can have one such promise at a time. */
  pending<T>(): PromiseWithResolvers<T> {
    this.#followShutdown();
    const pending = Promise.withResolvers<T>();
    this.#reject = pending.reject;
    if (this.#aborted) pending.reject(this.#aborted.reason);
    return pending;
  }

  /** Settles as `work` does, or rejects with the reason when the call is aborted first. */
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

  /** Ends the deadline, and the abort by a stop: the operation is done, and its response is being sent. */
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
    endUnlessComplete(this.request);
  };
}
