import type { IncomingMessage, Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 100;

/** The time between the first signal and the stop, in which everything is served and no connection is kept. */
export class Drain {
  #active = false;

  get isActive(): boolean {
    return this.#active;
  }

  /** Has the connection of a request closed with its response, so that the client's next one goes elsewhere. */
  mark({ headers }: IncomingMessage): void {
    if (this.#active) headers.connection = [headers.connection, 'close'].filter(Boolean).join(', ');
  }

  /** Resolves after `limitMs`, or when no client is connected. */
  async run(server: Server, limitMs: number): Promise<void> {
    this.#active = true;
    for (let waited = 0; waited < limitMs; waited += POLL_MS) {
      if ((await connectionsOf(server)) === 0) return;
      await delay(POLL_MS);
    }
  }
}

function connectionsOf(server: Server): Promise<number> {
  return new Promise((resolve) => server.getConnections((_error, count) => resolve(count ?? 0)));
}
