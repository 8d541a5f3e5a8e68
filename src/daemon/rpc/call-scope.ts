import type { ServerResponse } from 'node:http';
import type { AbortRelay } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';

/** Aborts a call when its client disconnects, the daemon stops or its deadline passes. */
export class CallScope implements Disposable {
  readonly #response: ServerResponse;
  readonly #shutdown: AbortRelay;
  readonly #timer: NodeJS.Timeout | null;
  /** Made for the calls that ask for the signal. */
  #controller: AbortController | null = null;
  #aborted: { readonly reason: unknown } | null = null;
  #reject: (reason: unknown) => void = () => {};

  /** `timeoutMs`: null for no deadline; `timeoutMessage`: the message of its `deadline_exceeded`. */
  constructor(
    response: ServerResponse,
    shutdown: AbortRelay,
    timeoutMs: number | null,
    timeoutMessage: string,
  ) {
    this.#response = response;
    this.#shutdown = shutdown;
    response.on('close', this.#onClose);
    shutdown.add(this.#abort);
    const expire = () => this.#abort(new EnvdError('deadline_exceeded', timeoutMessage));
    this.#timer = timeoutMs === null ? null : setTimeout(expire, timeoutMs);
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#aborted) this.#controller.abort(this.#aborted.reason);
    }
    return this.#controller.signal;
  }

  /** Settles as `work` does, or throws the reason when the call is aborted. One at a time. */
  race<T>(work: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    work.then(resolve, reject);
    this.#reject = reject;
    if (this.#aborted) reject(this.#aborted.reason);
    return promise;
  }

  [Symbol.dispose](): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#response.removeListener('close', this.#onClose);
    this.#shutdown.remove(this.#abort);
  }

  readonly #onClose = () => this.#abort(new EnvdError('aborted', 'client disconnected'));

  readonly #abort = (reason: unknown) => {
    if (this.#aborted) return;
    this.#aborted = { reason };
    this.#controller?.abort(reason);
    this.#reject(reason);
  };
}
