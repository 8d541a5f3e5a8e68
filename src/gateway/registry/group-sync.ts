/** Makes writes durable for many writers with few syncs. Calls that come while one sync is in flight share the next one. */
export class GroupSync {
  readonly #once: () => Promise<void>;
  #running: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  /** @param once resolves when everything that was written before the call is durable */
  constructor(once: () => Promise<void>) {
    this.#once = once;
  }

  /** Resolves when everything that was written before the call is durable. Throws what `once` throws. */
  sync(): Promise<void> {
    if (!this.#running) return this.#start();
    this.#next ??= this.#running.then(
      () => this.#start(),
      () => this.#start(),
    );
    return this.#next;
  }

  #start(): Promise<void> {
    this.#next = null;
    const running = this.#once().finally(() => {
      if (this.#running === running) this.#running = null;
    });
    this.#running = running;
    return running;
  }
}
