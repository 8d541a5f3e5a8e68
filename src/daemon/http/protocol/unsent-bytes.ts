import type { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Kept, Quota } from '../../../base/quota.ts';

/** A client that takes nothing for this time has stalled, in milliseconds. */
const STALL_MS = 5000;
/** A client that waits is looked at so often, in milliseconds. */
const QUIET_MS = 500;

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
export class UnsentBytes implements Kept {
  readonly #response: Destination;
  readonly #unread: Quota;
  #isCounted = false;
  #isWaiting = false;
  /** When the client was last found to have taken nothing since the look before, and since when it has taken nothing. */
  #quietAt = Number.NEGATIVE_INFINITY;
  #quietSince = 0;
  #dropped: EnvdError | null = null;

  constructor(response: Destination, unread: Quota) {
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
    this.#quietAt = Number.NEGATIVE_INFINITY;
    this.#unread.set(this, bytes, true);
  }

  /** Reports that the kernel has taken everything. */
  taken(): void {
    this.#isWaiting = false;
    if (this.#isCounted) this.#unread.set(this, 0);
  }

  /**
   * Calls `listener` when the client has taken none of the bytes that wait for it for 5 s, and again and again after that. Node
   * emits `timeout` when a socket was quiet for a time; when some bytes were taken meanwhile, it only starts that time again. So
   * the socket was quiet all along when events follow each other without such a pause.
   */
  onStall(listener: () => void): void {
    this.#response.setTimeout(QUIET_MS);
    this.#response.on('timeout', () => {
      if (!this.#isWaiting) return;
      const now = monotonicMs();
      if (now - this.#quietAt >= 2 * QUIET_MS) this.#quietSince = now - QUIET_MS;
      this.#quietAt = now;
      this.#response.setTimeout(QUIET_MS);
      if (now - this.#quietSince >= STALL_MS) listener();
    });
  }

  drop(reason: EnvdError): void {
    this.#dropped = reason;
    this.#unread.set(this, 0);
    this.#response.destroy();
  }
}
