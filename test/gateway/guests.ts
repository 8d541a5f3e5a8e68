import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Many guests in one server, for tests with more of them than there can be daemons: they only stand or run. */
export interface Guests extends AsyncDisposable {
  /** A port for each. */
  readonly ports: readonly number[];
  isFrozen(index: number): boolean;
}

export async function startGuests(count: number): Promise<Guests> {
  const frozen = new Set<number>();
  const servers = await Promise.all(Array.from({ length: count }, (_, index) => startGuest(index, frozen)));
  return {
    ports: servers.map((server) => (server.address() as AddressInfo).port),
    isFrozen: (index) => frozen.has(index),
    async [Symbol.asyncDispose]() {
      for (const server of servers) {
        server.closeAllConnections();
        server.close();
      }
    },
  };
}

async function startGuest(index: number, frozen: Set<number>) {
  const figures = { requested: 2, frozen: 2, notFrozen: 0, failed: 0, unobservable: 0, truncated: false };
  const server = createServer((request, response) => {
    const operation = request.url?.split('?', 1)[0];
    if (operation === '/freeze') frozen.add(index);
    if (operation === '/unfreeze') frozen.delete(index);
    if (operation === '/unfreeze' || operation === '/health') response.writeHead(204).end();
    else response.end(JSON.stringify(operation === '/freeze' ? figures : {}));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
