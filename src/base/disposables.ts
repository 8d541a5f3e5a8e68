/** Releases resources together: each once, in reverse order of addition, also when one of them throws. */
export class Disposables implements Disposable {
  #releases: (() => void)[] = [];
  #disposed = false;

  /** Adds a release function; calls it immediately if this object has been disposed of already. */
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
    if (errors.length > 0) throw new AggregateError(errors, 'cannot release all resources');
  }
}
