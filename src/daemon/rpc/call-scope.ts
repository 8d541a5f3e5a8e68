import type { ServerResponse } from 'node:http';
import { onAbort } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';

/** Aborts a call when its client disconnects, the daemon stops or its deadline passes. */
export class CallScope implements Disposable {
  readonly #controller = new AbortController();
  readonly #aborted = Promise.withResolvers<never>();
  readonly #removeListeners: () => void;
  readonly #timer: NodeJS.Timeout | null;

  /** `timeoutMs`: null for no deadline; `timeoutMessage`: the message of its `deadline_exceeded`. */
  constructor(
    response: ServerResponse,
    shutdown: AbortSignal,
    timeoutMs: number | null,
    timeoutMessage: string,
  ) {
    this.#aborted.promise.catch(() => {}); // Otherwise an unhandled rejection if nothing is raced.
    const onClose = () => this.#abort(new EnvdError('aborted', 'client disconnected'));
    response.once('close', onClose);
    const removeShutdownListener = onAbort(shutdown, () => this.#abort(shutdown.reason));
    this.#removeListeners = () => {
      response.removeListener('close', onClose);
      removeShutdownListener();
    };
    const expire = () => this.#abort(new EnvdError('deadline_exceeded', timeoutMessage));
    this.#timer = timeoutMs === null ? null : setTimeout(expire, timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /**
   * Settles as `work` does, or throws the reason when the call is aborted. Use it only a few times per call: each use
   * holds memory until the scope is disposed of.
   */
  race<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#aborted.promise]);
  }

  [Symbol.dispose](): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#removeListeners();
  }

  #abort(reason: unknown): void {
    this.#controller.abort(reason);
    this.#aborted.reject(reason);
  }
}
