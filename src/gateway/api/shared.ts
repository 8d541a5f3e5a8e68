/** Lets concurrent callers that want the same work share one run of it. */
export class Shared<T> {
  readonly #running = new Map<string, Promise<T>>();

  /** Settles as the running work for this key does. If none runs, calls `work` and settles as that does. */
  run(key: string, work: () => Promise<T>): Promise<T> {
    const running = this.#running.get(key) ?? work().finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }
}
