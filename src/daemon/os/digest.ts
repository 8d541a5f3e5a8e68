import { native } from './native.ts';

/**
 * A digest that is computed in the thread pool: at 1 to 2 ms per MiB, a large file would block the event loop. Node's
 * own `createHash` computes on the calling thread.
 */
export class PooledDigest {
  readonly #digest: ReturnType<typeof native.createDigest>;

  /** @param algorithm OpenSSL's name of it; throws EINVAL if unknown */
  constructor(algorithm: string) {
    this.#digest = native.createDigest(algorithm);
  }

  /** Adds the pieces, which must not be modified or released until it resolves. One call at a time. */
  async update(pieces: readonly Buffer[]): Promise<void> {
    await native.updateDigest(this.#digest, pieces);
  }

  /** The digest; the object must not be used afterwards. */
  finish(): Buffer {
    return native.finishDigest(this.#digest);
  }
}
