import type { Writable } from 'node:stream';
import { type TooMany, tooMany } from './rates.ts';

/** Limits the requests in flight of each client. Requests to sandboxes, streams and platform operations count together. */
export class InFlight {
  readonly #limit: number | null;
  readonly #counts = new Map<string, number>();

  /** @param limit the number of requests that one client may have in flight; null means no limit */
  constructor(limit: number | null) {
    this.#limit = limit;
  }

  /**
   * Counts a request until the stream of its response is closed, and returns null. Returns a refusal if the limit is reached.
   */
  take(client: string, stream: Writable): TooMany | null {
    if (this.#limit === null) return null;
    const count = this.#counts.get(client) ?? 0;
    if (count >= this.#limit)
      return tooMany(`client '${client}' has ${this.#limit} requests in flight, the most that it may have`);
    this.#counts.set(client, count + 1);
    stream.once('close', () => this.#end(client));
    return null;
  }

  #end(client: string): void {
    const left = (this.#counts.get(client) ?? 0) - 1;
    if (left > 0) this.#counts.set(client, left);
    else this.#counts.delete(client);
  }
}
