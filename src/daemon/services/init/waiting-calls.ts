import { onAbort } from '../../../base/abort.ts';
import { EnvdError } from '../../../base/errors.ts';

const LIMIT = 64;

/** The place of a call that waits. Dispose of it when the wait is over. */
export interface WaitSlot extends Disposable {
  /** Aborts when the client has gone, or when a newer call has taken the place. */
  readonly signal: AbortSignal;
}

/**
 * Bounds the number of calls that wait. A further call takes the place of the oldest, which is refused, so that callers who
 * wait in vain cannot lock out one that would be served soon.
 */
export class WaitingCalls {
  /** Functions that refuse one waiting call each, the oldest first. */
  readonly #waiting = new Set<() => void>();

  /** Gives a place to a call; `gone` aborts when its client disconnects. */
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
