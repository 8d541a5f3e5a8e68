import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Simulated daemons, more than a machine could run: they only freeze and thaw. */
export interface Guests extends AsyncDisposable {
  /** A port for each. */
  readonly ports: readonly number[];
  isFrozen(index: number): boolean;
  /** Blocks an operation of all guests until `release` is called; `reached` resolves with the first call. */
  hold(operation: string): { readonly reached: Promise<void>; readonly release: () => void };
}

interface Hold {
  readonly operation: string;
  readonly reach: () => void;
  readonly released: Promise<void>;
}

export async function startGuests(count: number): Promise<Guests> {
  const frozen = new Set<number>();
  const holds: Hold[] = [];
  const servers = await Promise.all(
    Array.from({ length: count }, (_, index) => startGuest(index, frozen, holds)),
  );
  return {
    ports: servers.map((server) => (server.address() as AddressInfo).port),
    isFrozen: (index) => frozen.has(index),
    hold(operation) {
      const [reached, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      holds.push({ operation, reach: reached.resolve, released: released.promise });
      return { reached: reached.promise, release: released.resolve };
    },
    async [Symbol.asyncDispose]() {
      for (const server of servers) {
        server.closeAllConnections();
        server.close();
      }
    },
  };
}

async function startGuest(index: number, frozen: Set<number>, holds: readonly Hold[]) {
  const figures = { requested: 2, frozen: 2, notFrozen: 0, failed: 0, unobservable: 0, truncated: false };
  const server = createServer(async (request, response) => {
    const operation = request.url?.split('?', 1)[0];
    for (const hold of holds.filter((each) => each.operation === operation)) {
      hold.reach();
      await hold.released;
    }
    if (operation === '/freeze') frozen.add(index);
    if (operation === '/unfreeze') frozen.delete(index);
    if (operation === '/unfreeze' || operation === '/health') response.writeHead(204).end();
    else response.end(JSON.stringify(operation === '/freeze' ? figures : {}));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
