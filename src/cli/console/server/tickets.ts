import { randomBytes } from 'node:crypto';

/** What a download is of. */
export interface DownloadOrder {
  readonly sandbox: string | null;
  readonly path: string;
  /** Of an archive; null: the file itself. */
  readonly format: string | null;
}

const LIFE_MS = 60_000;
const MAX_TICKETS = 100;

/** Orders of downloads under names that work once: a link, which browsers save to a file, cannot send the header of a session. */
export class Tickets {
  readonly #orders = new Map<string, { readonly order: DownloadOrder; readonly until: number }>();

  issue(order: DownloadOrder): string {
    const now = performance.now();
    for (const [name, { until }] of this.#orders)
      if (until < now || this.#orders.size >= MAX_TICKETS) this.#orders.delete(name);
    const name = randomBytes(24).toString('base64url');
    this.#orders.set(name, { order, until: now + LIFE_MS });
    return name;
  }

  /** The order of a ticket, which it uses up; null: there is none. */
  take(name: string): DownloadOrder | null {
    const found = this.#orders.get(name);
    this.#orders.delete(name);
    return found && found.until >= performance.now() ? found.order : null;
  }
}
