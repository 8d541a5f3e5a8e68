import type { ServerResponse } from 'node:http';
import type { EnvdError } from '../../../base/errors.ts';
import { monotonicMs } from '../../../base/monotonic.ts';
import type { Kept, Unread } from '../../../base/unread.ts';

/** Half of the time after which a client that takes nothing is told to have stalled, in milliseconds. */
const QUIET_MS = 2500;

/**
 * Bytes that a stream has written and the kernel has not taken, counted until the response is closed. Dropping destroys
 * the connection: written bytes cannot be taken back.
 */
export class Sending implements Kept {
  readonly #response: ServerResponse;
  readonly #unread: Unread;
  #isCounted = false;
  #isWaiting = false;
  #dropped: EnvdError | null = null;

  constructor(response: ServerResponse, unread: Unread) {
    this.#response = response;
    this.#unread = unread;
  }

  /** Why it was dropped, or null. */
  get dropped(): EnvdError | null {
    return this.#dropped;
  }

  /** Counts `bytes` until `taken`. */
  wait(bytes: number): void {
    if (!this.#isCounted) this.#response.once('close', () => this.#unread.set(this, 0));
    this.#isCounted = true;
    this.#isWaiting = true;
    this.#unread.set(this, bytes, true);
  }

  /** The kernel has taken everything. */
  taken(): void {
    this.#isWaiting = false;
    if (this.#isCounted) this.#unread.set(this, 0);
  }

  /**
   * Calls `listener` when the client has taken none of the bytes that wait for it for 5 s, and every 2.5 s from then on. Node
   * tells when a socket was quiet for a time, and starts that time anew, without a word, when some bytes were taken: it was
   * quiet all along when Node tells twice in a row.
   */
  onStall(listener: () => void): void {
    let told = Number.NEGATIVE_INFINITY;
    this.#response.setTimeout(QUIET_MS);
    this.#response.on('timeout', () => {
      if (!this.#isWaiting) return;
      const before = told;
      told = monotonicMs();
      this.#response.setTimeout(QUIET_MS);
      if (told - before < 2 * QUIET_MS) listener();
    });
  }

  drop(reason: EnvdError): void {
    this.#dropped = reason;
    this.#unread.set(this, 0);
    this.#response.destroy();
  }
}
