/** Does once what several ask for at the same time. */
export class Shared<T> {
  readonly #running = new Map<string, Promise<T>>();

  /** Resolves, or throws, as the work for this key does that runs already, or as `work`. */
  run(key: string, work: () => Promise<T>): Promise<T> {
    const running = this.#running.get(key) ?? work().finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }
}
