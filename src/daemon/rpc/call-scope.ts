import type { ServerResponse } from 'node:http';
import type { AbortListener, AbortRelay } from '../../base/abort.ts';
import { freeAll } from '../../base/buffers.ts';
import { EnvdError } from '../../base/errors.ts';
import type { Kept, Unread } from '../../base/unread.ts';

/** What all calls share. */
export interface SharedLimits {
  readonly shutdown: AbortRelay;
  /** Bounds the requests that are being received and served. */
  readonly requests: Unread;
  /** Bounds what clients have not taken. */
  readonly unread: Unread;
}

/** Smaller requests are not counted: their sum is bounded by the number of connections. */
export const COUNTED_BYTES = 16 * 1024;

/**
 * Aborts a call when its client disconnects, the daemon stops, its deadline passes, or requests take too much memory and
 * this one has waited longest.
 */
export class CallScope implements Disposable, Kept, AbortListener {
  index = -1;
  readonly #response: ServerResponse;
  readonly #shared: SharedLimits;
  readonly #timer: NodeJS.Timeout | null;
  /** Made for the calls that ask for the signal. */
  #controller: AbortController | null = null;
  #aborted: { readonly reason: unknown } | null = null;
  #reject: (reason: unknown) => void = () => {};
  #isHeld = false;
  #pieces: Buffer[] | null = null;

  /** `timeoutMs`: null for no deadline; `timeoutMessage`: the message of its `deadline_exceeded`. */
  constructor(
    response: ServerResponse,
    shared: SharedLimits,
    timeoutMs: number | null,
    timeoutMessage: string,
  ) {
    this.#response = response;
    this.#shared = shared;
    response.on('close', this.#onClose);
    shared.shutdown.add(this);
    const expire = () => this.abort(new EnvdError('deadline_exceeded', timeoutMessage));
    this.#timer = timeoutMs === null ? null : setTimeout(expire, timeoutMs);
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#aborted.reason);
    }
    return this.#controller.signal;
  }

  get isAborted(): boolean {
    return this.#aborted !== null;
  }

  /** Frees the pieces of the body when the call is aborted, until it is told that they are complete (null). */
  receive(pieces: Buffer[] | null): void {
    this.#pieces = pieces;
  }

  /** Counts the bytes of the request until the end of the call; 0: it is not kept any longer. */
  hold(bytes: number): void {
    if (!this.#isHeld && bytes <= COUNTED_BYTES) return;
    const kept = this.#aborted ? 0 : bytes;
    this.#isHeld = kept > 0;
    this.#shared.requests.set(this, kept, true);
  }

  drop(reason: EnvdError): void {
    this.hold(0);
    this.abort(reason);
  }

  /** A promise that is rejected with the reason when the call is aborted. One at a time. */
  pending<T>(): PromiseWithResolvers<T> {
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
    if (this.#pieces) freeAll(this.#pieces);
    this.#controller?.abort(reason);
    this.#reject(reason);
  }

  [Symbol.dispose](): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#response.removeListener('close', this.#onClose);
    this.#shared.shutdown.remove(this);
    this.hold(0);
  }

  readonly #onClose = () => this.abort(new EnvdError('aborted', 'client disconnected'));
}
