import type { ServerResponse } from 'node:http';
import { onAbort } from '../../base/abort.ts';
import { EnvdError } from '../../base/errors.ts';

/**
 * What ends a call before its time: its client goes, the daemon stops, its deadline passes. One controller for all of
 * that, aborted only when it comes to it.
 */
export class CallScope implements Disposable {
  readonly #controller = new AbortController();
  readonly #cut = Promise.withResolvers<never>();
  readonly #forget: () => void;
  readonly #timer: NodeJS.Timeout | null;

  /** @param late what a client is told whose deadline has passed, after `timeoutMs`; null: there is none */
  constructor(response: ServerResponse, shutdown: AbortSignal, timeoutMs: number | null, late: string) {
    this.#cut.promise.catch(() => {}); // Nobody may be waiting.
    const onClose = () => this.#abort(new EnvdError('aborted', 'client has gone'));
    response.once('close', onClose);
    const forgetShutdown = onAbort(shutdown, () => this.#abort(shutdown.reason));
    this.#forget = () => {
      response.removeListener('close', onClose);
      forgetShutdown();
    };
    const expire = () => this.#abort(new EnvdError('deadline_exceeded', late));
    this.#timer = timeoutMs === null ? null : setTimeout(expire, timeoutMs);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /**
   * What `work` settles with, unless the call ends before. For a few times a call: what is raced is kept until the scope
   * is disposed of.
   */
  race<T>(work: Promise<T>): Promise<T> {
    return Promise.race([work, this.#cut.promise]);
  }

  [Symbol.dispose](): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#forget();
  }

  #abort(reason: unknown): void {
    this.#controller.abort(reason);
    this.#cut.reject(reason);
  }
}
