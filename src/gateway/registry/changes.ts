/** Wakes those who wait for the record of a sandbox to change. */
export class Changes {
  readonly #waiting = new Map<string, Set<() => void>>();

  /** To be called after each change of a record; null: any may have changed. */
  announce(id: string | null): void {
    const wakes =
      id === null ? [...this.#waiting.values()].flatMap((each) => [...each]) : this.#waiting.get(id);
    for (const wake of wakes ?? []) wake();
  }

  /** Begins to wait for the next change, for `ms` at most: other gateways may have made it without a notice. */
  next(id: string, ms: number): { readonly changed: Promise<void>; forget(): void } {
    const { promise: changed, resolve: wake } = Promise.withResolvers<void>();
    const timer = setTimeout(wake, ms);
    const waiting = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiting.add(wake));
    const forget = () => {
      clearTimeout(timer);
      waiting.delete(wake);
      if (waiting.size === 0 && this.#waiting.get(id) === waiting) this.#waiting.delete(id);
    };
    return { changed, forget };
  }
}
