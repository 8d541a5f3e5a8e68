import type { Writable } from 'node:stream';

/** The exchanges in flight between clients and sandboxes: requests, streams, upgraded connections. */
export class Exchanges {
  readonly #open = new Map<string, Set<Writable>>();
  /** In flight now. */
  count = 0;
  /** Exchanges ended because their sandbox was gone. */
  ended = 0;

  /** Counts an exchange until its stream is closed. */
  add(sandboxId: string, exchange: Writable): void {
    const open = this.#open.get(sandboxId) ?? new Set();
    this.#open.set(sandboxId, open.add(exchange));
    this.count++;
    exchange.once('close', () => {
      this.count--;
      open.delete(exchange);
      if (open.size === 0 && this.#open.get(sandboxId) === open) this.#open.delete(sandboxId);
    });
  }

  /** The number in flight with one sandbox. */
  countOf(sandboxId: string): number {
    return this.#open.get(sandboxId)?.size ?? 0;
  }

  /** Closes the client's side of all exchanges with a sandbox; published clients then ask whether it still runs. */
  end(sandboxId: string): void {
    for (const exchange of this.#open.get(sandboxId) ?? []) {
      this.ended++;
      exchange.destroy();
    }
  }

  endAll(): void {
    for (const id of this.sandboxIds()) this.end(id);
  }

  /** The sandboxes with exchanges in flight. */
  sandboxIds(): readonly string[] {
    return [...this.#open.keys()];
  }
}
