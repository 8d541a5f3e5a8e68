import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface FrontOptions {
  /** Answers a request itself and returns true, or returns false. */
  readonly answers?: (incoming: IncomingMessage, response: ServerResponse) => boolean;
  /** The answer to a request for this path waits for the result. */
  readonly beforeAnswer?: (path: string) => Promise<void>;
}

/** A server in front of another one, to which it passes what it does not answer itself. */
export interface Front extends AsyncDisposable {
  readonly url: string;
  closeAllConnections(): void;
}

export async function startFront(url: string, options: FrontOptions): Promise<Front> {
  const server = createServer((incoming, response) => {
    if (options.answers?.(incoming, response)) return;
    const { url: path = '', method, headers } = incoming;
    const passed = request(`${url}${path}`, { method, headers }, async (answer) => {
      await options.beforeAnswer?.(path);
      response.writeHead(answer.statusCode ?? 0, answer.headers);
      answer.pipe(response);
    });
    incoming.pipe(passed.on('error', () => response.destroy()));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    closeAllConnections: () => server.closeAllConnections(),
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}
