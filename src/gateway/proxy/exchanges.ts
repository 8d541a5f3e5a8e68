import type { Writable } from 'node:stream';

/** What is open between clients and sandboxes: requests, streams, upgraded connections. */
export class Exchanges {
  readonly #open = new Map<string, Set<Writable>>();
  /** How many there are now. */
  count = 0;
  /** How many there have been. */
  total = 0;
  /** How many were ended because their sandbox has gone. */
  ended = 0;

  /** Counts one until it is closed. */
  add(sandboxId: string, exchange: Writable): void {
    const open = this.#open.get(sandboxId) ?? new Set();
    this.#open.set(sandboxId, open.add(exchange));
    this.count++;
    this.total++;
    exchange.once('close', () => {
      this.count--;
      open.delete(exchange);
      if (open.size === 0 && this.#open.get(sandboxId) === open) this.#open.delete(sandboxId);
    });
  }

  /** Breaks off all that is open to a sandbox: its clients learn that at once, and ask whether it is there. */
  end(sandboxId: string): void {
    for (const exchange of this.#open.get(sandboxId) ?? []) {
      this.ended++;
      exchange.destroy();
    }
  }

  endAll(): void {
    for (const id of this.sandboxIds()) this.end(id);
  }

  /** The sandboxes that something is open to. */
  sandboxIds(): readonly string[] {
    return [...this.#open.keys()];
  }
}
