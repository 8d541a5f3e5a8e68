import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';

/** The most calls that may wait. */
const LIMIT = 64;

/** The place of a call that waits. */
export interface WaitSlot extends Disposable {
  /** Aborts when the client has gone, and when a newer call has taken the place. */
  readonly signal: AbortSignal;
}

/**
 * A bounded number of waiting calls. A further one displaces the oldest, which is refused: callers who wait in vain
 * cannot lock out one who would be served soon.
 */
export class WaitingCalls {
  /** A function for each waiting call that refuses it, the oldest first. */
  readonly #waiting = new Set<() => void>();

  /** `gone` aborts when the client disconnects. */
  enter(gone: AbortSignal): WaitSlot {
    const ended = new AbortController();
    const displace = () =>
      ended.abort(new EnvdError('unavailable', `more than ${LIMIT} calls are waiting: try again`));
    const [oldest] = this.#waiting;
    if (oldest && this.#waiting.size >= LIMIT) {
      this.#waiting.delete(oldest);
      oldest();
    }
    this.#waiting.add(displace);
    const stopListening = onAbort(gone, () => ended.abort(new EnvdError('aborted', 'client disconnected')));
    return {
      signal: ended.signal,
      [Symbol.dispose]: () => {
        stopListening();
        this.#waiting.delete(displace);
      },
    };
  }
}
