import type { ServerResponse } from 'node:http';
import { Allowance } from '../../../../base/allowance.ts';
import { EnvdError } from '../../../../base/errors.ts';

/** Bytes of all downloads together that clients have not read yet. */
const MAX_UNSENT = 32 * 1024 * 1024;
/** Bodies that need buffers of their own, half a MiB each: compressed ones and several ranges. */
const MAX_STREAMED = 16;

/** Bounds the memory of all downloads, whose clients may never read. */
export class DownloadLimits {
  readonly #unsent = new Allowance(MAX_UNSENT);
  readonly #streamed = new Allowance(MAX_STREAMED);

  /** Holds the bytes until the response has ended. Throws `resource_exhausted`. */
  hold(bytes: number, response: ServerResponse): void {
    const release = this.take(bytes);
    if (response.destroyed) release();
    else response.once('close', release);
  }

  /** Returns the function that releases the bytes, once. Throws `resource_exhausted`. */
  take(bytes: number): () => void {
    if (!this.#unsent.take(bytes)) throw exhausted('clients do not read their downloads');
    let held = bytes;
    return () => {
      this.#unsent.release(held);
      held = 0;
    };
  }

  /** Whether one more body may be streamed, until its response has ended. */
  mayStream(response: ServerResponse): boolean {
    if (response.destroyed || !this.#streamed.take(1)) return false;
    response.once('close', () => this.#streamed.release(1));
    return true;
  }
}

export function exhausted(reason: string): EnvdError {
  return new EnvdError(
    'resource_exhausted',
    `too many downloads at the same time: ${reason}; try again later`,
  );
}
