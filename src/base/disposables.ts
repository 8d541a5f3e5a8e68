/** Owns what is to be released together: the last added goes first, each once, even when one of them throws. */
export class Disposables implements Disposable {
  #releases: (() => void)[] = [];
  #disposed = false;

  /** Adds a release; runs it at once when the owner has been disposed of already. */
  add(release: () => void): void {
    if (this.#disposed) release();
    else this.#releases.push(release);
  }

  [Symbol.dispose](): void {
    this.#disposed = true;
    const errors: unknown[] = [];
    for (const release of this.#releases.splice(0).reverse()) {
      try {
        release();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw new AggregateError(errors, 'cannot release everything');
  }
}
