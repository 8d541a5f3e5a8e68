import type { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Kept, Unread } from '../../../base/unread.ts';

/** A client that takes nothing for twice this time has stalled. */
const QUIET_MS = 2500;

/** A response, or the connection of a WebSocket. */
interface Destination {
  once(event: 'close', listener: () => void): unknown;
  on(event: 'timeout', listener: () => void): unknown;
  setTimeout(milliseconds: number): unknown;
  destroy(): unknown;
}

/**
 * Counts bytes that a response has written and the kernel has not taken, until the response is closed. Dropping them destroys the
 * connection, because written bytes cannot be taken back.
 */
export class Sending implements Kept {
  readonly #response: Destination;
  readonly #unread: Unread;
  #isCounted = false;
  #isWaiting = false;
  #dropped: EnvdError | null = null;

  constructor(response: Destination, unread: Unread) {
    this.#response = response;
    this.#unread = unread;
  }

  /** The reason why the response was dropped, or null. */
  get dropped(): EnvdError | null {
    return this.#dropped;
  }

  /** Counts `bytes` until `taken` is called or the response is closed. */
  wait(bytes: number): void {
    if (!this.#isCounted) this.#response.once('close', () => this.#unread.set(this, 0));
    this.#isCounted = true;
    this.#isWaiting = true;
    this.#unread.set(this, bytes, true);
  }

  /** Reports that the kernel has taken everything. */
  taken(): void {
    this.#isWaiting = false;
    if (this.#isCounted) this.#unread.set(this, 0);
  }

  /**
   * Calls `listener` when the client has taken none of the bytes that wait for it for 5 s, and every 2.5 s after that. Node emits
   * `timeout` when a socket was quiet for a time; when some bytes were taken meanwhile, it only starts that time again. So the
   * socket was quiet all along when two events come in a row.
   */
  onStall(listener: () => void): void {
    let quietAt = Number.NEGATIVE_INFINITY;
    this.#response.setTimeout(QUIET_MS);
    this.#response.on('timeout', () => {
      if (!this.#isWaiting) return;
      const before = quietAt;
      quietAt = monotonicMs();
      this.#response.setTimeout(QUIET_MS);
      if (quietAt - before < 2 * QUIET_MS) listener();
    });
  }

  drop(reason: EnvdError): void {
    this.#dropped = reason;
    this.#unread.set(this, 0);
    this.#response.destroy();
  }
}
