import type { IncomingMessage, Server } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { connectionsOf } from '../../base/http/connections.ts';

const POLL_MS = 100;

/**
 * The time between the first signal and the stop. The gateway serves every request, but each response closes its connection.
 */
export class Drain {
  #active = false;

  get isActive(): boolean {
    return this.#active;
  }

  /** Makes the response close its connection, so that the client's next request goes elsewhere. */
  mark({ headers }: IncomingMessage): void {
    if (this.#active) headers.connection = [headers.connection, 'close'].filter(Boolean).join(', ');
  }

  /** Resolves after `limitMs`, or earlier when no client is connected. */
  async run(server: Server, limitMs: number): Promise<void> {
    this.#active = true;
    for (let waited = 0; waited < limitMs; waited += POLL_MS) {
      if ((await connectionsOf(server)) === 0) return;
      await delay(POLL_MS);
    }
  }
}
