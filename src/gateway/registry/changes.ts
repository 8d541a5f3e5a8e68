/** Tells whether a record has changed since it is followed. */
export interface FollowedRecord extends Disposable {
  readonly hasChanged: boolean;
}

/** Wakes callers that wait for a change of a record. */
export class Changes {
  readonly #waiting = new Map<string, Set<() => void>>();

  /** Follows a record until the result is disposed of. */
  follow(id: string): FollowedRecord {
    let hasChanged = false;
    const forget = this.#add(id, () => {
      hasChanged = true;
    });
    return {
      get hasChanged() {
        return hasChanged;
      },
      [Symbol.dispose]: forget,
    };
  }

  /** Must be called after each change of a record; `id` is null if any record may have changed. */
  announce(id: string | null): void {
    const wakes =
      id === null ? [...this.#waiting.values()].flatMap((each) => [...each]) : this.#waiting.get(id);
    for (const wake of wakes ?? []) wake();
  }

  /**
   * Begins to wait for the next change. `changed` also resolves after `ms`, because other gateways may change the record
   * without a notice. `forget` must be called at the end.
   */
  next(id: string, ms: number): { readonly changed: Promise<void>; forget(): void } {
    const { promise: changed, resolve: wake } = Promise.withResolvers<void>();
    const timer = setTimeout(wake, ms);
    const remove = this.#add(id, wake);
    const forget = () => {
      clearTimeout(timer);
      remove();
    };
    return { changed, forget };
  }

  /** Returns a function that removes `wake`. */
  #add(id: string, wake: () => void): () => void {
    const waiting = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiting.add(wake));
    return () => {
      waiting.delete(wake);
      if (waiting.size === 0 && this.#waiting.get(id) === waiting) this.#waiting.delete(id);
    };
  }
}
