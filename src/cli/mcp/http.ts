import { createHash, timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createMcpHandler, type McpHttpHandler } from '@modelcontextprotocol/server';
import { Failure } from '../output/failure.ts';
import type { SandboxTools } from './server.ts';

const ADDRESS = '127.0.0.1';
const PATH = '/mcp';
/** One connection has one request at a time, so this is also the most requests. */
const MAX_CONNECTIONS = 64;
const MAX_SUBSCRIPTIONS = 8;
const MAX_BODY = 4 * 1024 * 1024;
/** A client may take this time to send a request, in milliseconds. */
const REQUEST_MS = 60_000;

/** Serves clients of this machine that have the token. There are no sessions: each request is complete in itself. */
export class McpHttpServer {
  readonly #server: Server;
  readonly #handler: McpHttpHandler;
  readonly #hosts: readonly string[];
  readonly #digest: Buffer;

  private constructor(server: Server, handler: McpHttpHandler, token: string) {
    const { port } = server.address() as AddressInfo;
    this.#server = server;
    this.#handler = handler;
    this.#hosts = [ADDRESS, 'localhost'].map((name) => `${name}:${port}`);
    this.#digest = digestOf(token);
    server.on('request', (request, response) => void this.#serve(request, response));
  }

  /** Listens on a port of this machine; 0: on a free one. Throws `Failure`. */
  static async open(tools: SandboxTools, port: number, token: string): Promise<McpHttpServer> {
    const handler = createMcpHandler(() => tools.newServer(), {
      maxRequestBodySize: MAX_BODY,
      maxSubscriptions: MAX_SUBSCRIPTIONS,
    });
    const server = createServer({ requestTimeout: REQUEST_MS });
    server.maxConnections = MAX_CONNECTIONS;
    server.listen(port, ADDRESS);
    await once(server, 'listening').catch((error: NodeJS.ErrnoException) => {
      throw new Failure('failed', `cannot listen on port ${port}: ${error.code}`);
    });
    return new McpHttpServer(server, handler, token);
  }

  get url(): string {
    return `http://${this.#hosts[0]}${PATH}`;
  }

  async close(): Promise<void> {
    this.#server.close();
    await this.#handler.close();
    this.#server.closeAllConnections();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.on('error', () => {});
    const refusal = this.#refusalOf(request);
    if (refusal) {
      const [status, message] = refusal;
      // A body that nobody reads would hold up the connection.
      response.writeHead(status, {
        ...{ 'content-type': 'text/plain', connection: 'close' },
        ...(status === 401 && { 'www-authenticate': 'Bearer' }),
      });
      response.end(`${message}\n`);
      return;
    }
    const left = new AbortController();
    response.once('close', () => left.abort());
    try {
      const answer = await this.#handler.fetch(asWebRequest(request, this.url, left.signal));
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      if (answer.body) await pipeline(answer.body, response);
      else response.end();
    } catch {
      // The client has left, or the program ends.
      response.destroy();
    }
  }

  /**
   * Returns why a request is refused, or null. A page in a browser of this machine comes with another host, after its name was bound
   * to this address, or with an origin. The token keeps off everybody else.
   */
  #refusalOf({ headers, url = '' }: IncomingMessage): readonly [status: number, message: string] | null {
    if (!this.#hosts.includes(headers.host ?? '')) return [403, 'this server has another host name'];
    const { origin } = headers;
    if (origin !== undefined && !this.#hosts.some((host) => origin === `http://${host}`))
      return [403, 'pages of this origin must not call this server'];
    const [, token = ''] = /^Bearer (\S+)$/i.exec(headers.authorization ?? '') ?? [];
    if (!timingSafeEqual(digestOf(token), this.#digest)) return [401, 'the token is missing or wrong'];
    return url === PATH ? null : [404, `there is nothing but ${PATH}`];
  }
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

function asWebRequest(request: IncomingMessage, url: string, signal: AbortSignal): Request {
  const headers = Object.entries(request.headers).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as [string, string]],
  );
  const { method = 'GET' } = request;
  const hasBody = method !== 'GET' && method !== 'HEAD';
  const body = hasBody ? { body: Readable.toWeb(request) as ReadableStream, duplex: 'half' as const } : {};
  return new Request(url, { method, headers, signal, ...body });
}
