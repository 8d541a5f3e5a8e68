import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import type { HookCall } from '../servers/hook.ts';

/** What a platform has behind the URL of a hook: it does what it is told, and notes it. */
export interface Machines extends AsyncDisposable {
  readonly port: number;
  readonly calls: HookCall[];
}

export async function startMachines(): Promise<Machines> {
  const calls: HookCall[] = [];
  const server = createServer(async (request, response) => {
    const call = await json(request).catch(() => null);
    if (call) calls.push(call as HookCall);
    response.writeHead(call ? 204 : 400).end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    calls,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
    },
  };
}
