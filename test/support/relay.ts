import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A TCP relay on loopback in front of a local port. */
export interface Relay extends AsyncDisposable {
  readonly port: number;
  /** Passes nothing on any more, in both directions, and closes nothing: like a cable that is cut. */
  cut(): void;
  /** Closes the connections; new ones are relayed. */
  reset(): void;
}

/** @param onSent called with what clients send */
export async function startRelay(to: number, onSent: (data: Buffer) => void = () => {}): Promise<Relay> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let isCut = false;
  const server = createServer((client) => {
    const pair = [client, connect(to, '127.0.0.1')] as const;
    pairs.add(pair);
    client.on('data', onSent);
    for (const [from, other] of [pair, pair.toReversed()] as const) {
      from?.on('data', (data) => isCut || other?.write(data));
      // The other side may have reset it.
      from?.on('error', () => {});
      from?.once('close', () => {
        other?.destroy();
        pairs.delete(pair);
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const reset = () => {
    for (const pair of pairs) for (const each of pair) each.destroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    cut() {
      isCut = true;
    },
    reset,
    async [Symbol.asyncDispose]() {
      reset();
      server.close();
    },
  };
}
