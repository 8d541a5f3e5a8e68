import { native } from './native.ts';

/**
 * A digest that is computed in the thread pool: at 1 to 2 ms a MiB, a large file would take the event loop for itself.
 * Node's own `createHash` works where it is called.
 */
export class PooledDigest {
  readonly #digest: ReturnType<typeof native.createDigest>;

  /** @param algorithm as OpenSSL calls it; throws EINVAL for an unknown one */
  constructor(algorithm: string) {
    this.#digest = native.createDigest(algorithm);
  }

  /** Takes in the pieces, which nobody may change or give back meanwhile; one call at a time. */
  async update(pieces: readonly Buffer[]): Promise<void> {
    await native.updateDigest(this.#digest, pieces);
  }

  /** What has been computed; the end of this object's use. */
  finish(): Buffer {
    return native.finishDigest(this.#digest);
  }
}
