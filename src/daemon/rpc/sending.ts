import type { ServerResponse } from 'node:http';
import type { EnvdError } from '../../base/errors.ts';
import type { Kept, Unread } from '../../base/unread.ts';

/**
 * Bytes that a stream has written and the kernel has not taken, counted until the response is closed. Dropping destroys
 * the connection: written bytes cannot be taken back.
 */
export class Sending implements Kept {
  readonly #response: ServerResponse;
  readonly #unread: Unread;
  #isCounted = false;
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
    this.#unread.set(this, bytes, true);
  }

  /** The kernel has taken everything. */
  taken(): void {
    if (this.#isCounted) this.#unread.set(this, 0);
  }

  drop(reason: EnvdError): void {
    this.#dropped = reason;
    this.#unread.set(this, 0);
    this.#response.destroy();
  }
}
