import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { LogLine } from '../programs/log-lines.ts';

/** A collector of logs. */
export interface TestCollector extends AsyncDisposable {
  readonly url: string;
  /** Lines that were accepted. */
  readonly lines: LogLine[];
  /** How many requests have arrived. */
  arrivals: number;
  readonly contentTypes: (string | undefined)[];
  status: number;
  /** Handles the next requests instead, one each. */
  readonly intercepts: ((request: IncomingMessage, response: ServerResponse) => void)[];
}

export async function startCollector(port = 0): Promise<TestCollector> {
  const server = createServer(async (request, response) => {
    collector.arrivals++;
    const intercept = collector.intercepts.shift();
    if (intercept) return intercept(request, response);
    try {
      collector.contentTypes.push(request.headers['content-type']);
      const lines = JSON.parse(await text(request)) as LogLine[];
      if (collector.status === 200) collector.lines.push(...lines);
      response.writeHead(collector.status).end('{}');
    } catch {
      // The daemon has closed the connection.
      response.destroy();
    }
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const collector: TestCollector = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/logs`,
    ...{ lines: [], arrivals: 0, contentTypes: [], status: 200, intercepts: [] },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return collector;
}
