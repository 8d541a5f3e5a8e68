import type { ServerResponse } from 'node:http';
import { EnvdError } from '../../../../base/errors.ts';
import { Semaphore } from '../../../../base/semaphore.ts';

/** All downloads together may keep this many bytes that clients have not read yet. */
const MAX_UNSENT = 32 * 1024 * 1024;
/** This many bodies may have buffers of their own, of half a MiB each: compressed ones, and those of several ranges. */
const MAX_STREAMED = 16;

/** Limits the memory of all downloads, whose clients may never read. */
export class DownloadLimits {
  readonly #unsent = new Semaphore(MAX_UNSENT);
  readonly #streamed = new Semaphore(MAX_STREAMED);

  /** Counts the bytes until the response has ended. Throws `resource_exhausted`. */
  hold(bytes: number, response: ServerResponse): void {
    if (!response.destroyed && !this.#unsent.takeUntilClosed(response, bytes)) throw unread();
  }

  /** Counts the bytes, and returns the function that releases them once. Throws `resource_exhausted`. */
  take(bytes: number): () => void {
    if (!this.#unsent.take(bytes)) throw unread();
    let held = bytes;
    return () => {
      this.#unsent.release(held);
      held = 0;
    };
  }

  /** Takes a place for a streamed body until its response has ended. Returns false when there is none. */
  mayStream(response: ServerResponse): boolean {
    return this.#streamed.takeUntilClosed(response);
  }
}

function unread(): EnvdError {
  return exhausted('clients do not read their downloads');
}

export function exhausted(reason: string): EnvdError {
  return new EnvdError(
    'resource_exhausted',
    `too many downloads at the same time: ${reason}; try again later`,
  );
}
