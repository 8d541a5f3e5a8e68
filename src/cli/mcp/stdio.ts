import type { Readable, Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import type { SandboxTools } from './server.ts';

/** A message may have this many bytes. */
const MAX_MESSAGE = 16 * 1024 * 1024;
const MAX_SUBSCRIPTIONS = 8;

/** Serves one client on a pair of streams, until one of them ends or the signal aborts. */
export async function serveStreams(
  tools: SandboxTools,
  { input, output }: { readonly input: Readable; readonly output: Writable },
  signal: AbortSignal,
): Promise<void> {
  const transport = new StdioServerTransport(input, output, { maxBufferSize: MAX_MESSAGE });
  const options = { signal, cleanup: true };
  const closed = Promise.race([
    finished(input, { ...options, writable: false }),
    finished(output, { ...options, readable: false }),
  ]).catch(() => {
    // A stream broke off, or the program is to end.
  });
  const server = serveStdio(() => tools.newServer(), { transport, maxSubscriptions: MAX_SUBSCRIPTIONS });
  await closed;
  await server.close();
}
