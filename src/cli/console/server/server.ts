import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { failureOf } from '../../connection/failures.ts';
import { Failure } from '../../output/failure.ts';
import { answerError, sendFailure } from './answers.ts';
import { pageHeaders, securityHeaders } from './page-headers.ts';
import type { PageAddress } from './request-checks.ts';
import { refusalOfCaller } from './request-checks.ts';
import { type ConsoleSettings, Routes } from './routes.ts';

const ADDRESS = '127.0.0.1';
/**
 * Ports beside that of the page, for streams: a browser opens six connections to a port, for all of its windows, and each stream keeps
 * one.
 */
const STREAM_PORTS = 4;
const MAX_CONNECTIONS = 200;
const HEADERS_MS = 10_000;

/** The servers of a console: one for the page and its calls, the others for streams. */
export class ConsoleServer {
  readonly #servers: readonly Server[];
  readonly #page: PageAddress;
  readonly #routes: Routes;

  private constructor(servers: readonly Server[], page: PageAddress, routes: Routes) {
    this.#servers = servers;
    this.#page = page;
    this.#routes = routes;
    for (const server of servers)
      server.on('request', (request, response) => void this.#serve(request, response, server));
  }

  /** Listens. `origin`: where browsers find the page, if a proxy is in front; then streams are there, too. Throws `Failure`. */
  static async open(
    settings: ConsoleSettings,
    { port, origin }: { readonly port: number; readonly origin: string | null },
  ): Promise<ConsoleServer> {
    const first = await listen(port);
    const others =
      origin === null ? await Promise.all(Array.from({ length: STREAM_PORTS }, () => listen(0))) : [];
    const own = `http://${hostOf(first)}`;
    const page = { origin: origin ?? own, host: origin === null ? hostOf(first) : new URL(origin).host };
    const streams = others.map((each) => `http://${hostOf(each)}`);
    return new ConsoleServer([first, ...others], page, new Routes(settings, streams));
  }

  /** An address that opens the page, once. */
  newLink(): string {
    return `${this.#page.origin}/#${this.#routes.access.newSecret()}`;
  }

  /** Resolves when the server has been closed. */
  async closed(): Promise<void> {
    await once(this.#servers[0] as Server, 'close');
  }

  close(): void {
    for (const server of this.#servers) {
      server.close();
      server.closeAllConnections();
    }
    this.#routes.close();
  }

  async #serve(request: IncomingMessage, response: ServerResponse, server: Server): Promise<void> {
    const isOther = server !== this.#servers[0];
    for (const [name, value] of Object.entries(securityHeaders())) response.setHeader(name, value);
    request.on('error', () => {});
    response.on('error', () => {});
    try {
      const refusal = refusalOfCaller(request, this.#page, { host: hostOf(server), isOther });
      if (refusal !== null) return answerError(response, 403, 'permission_denied', refusal);
      for (const [name, value] of Object.entries(pageHeaders(this.#page, isOther)))
        response.setHeader(name, value);
      await this.#routes.answer(request, response, isOther);
    } catch (error) {
      if (response.headersSent) response.destroy();
      else sendFailure(response, failureOf(error, 'the console'));
    }
  }
}

async function listen(port: number): Promise<Server> {
  // An upload may take any time; headers and small bodies have limits of their own.
  const server = createServer({ requestTimeout: 0, headersTimeout: HEADERS_MS });
  server.maxConnections = MAX_CONNECTIONS;
  try {
    server.listen(port, ADDRESS);
    await once(server, 'listening');
  } catch (error) {
    throw new Failure('failed', `cannot listen on port ${port}: ${(error as Error).message}`);
  }
  return server;
}

function hostOf(server: Server): string {
  return `${ADDRESS}:${(server.address() as AddressInfo | null)?.port}`;
}
