import type { IncomingMessage, ServerResponse } from 'node:http';
import { basename } from 'node:path/posix';
import type { ConnectionSettings } from '../../connection/contexts.ts';
import { ConsoleAccess } from './access.ts';
import { answerError, readObject, sendJson } from './answers.ts';
import { gatewayCallOf, isDaemonCall } from './operations.ts';
import type { PageFile } from './page-files.ts';
import { contentPolicy } from './page-headers.ts';
import { passedHeaders, passOn } from './passing.ts';
import { Targets } from './targets.ts';
import { type DownloadOrder, Tickets } from './tickets.ts';

/** What a console serves. */
export interface ConsoleSettings {
  readonly page: ReadonlyMap<string, PageFile>;
  readonly connection: ConnectionSettings;
  /** Of envctl. */
  readonly version: string;
}

type RequestHandler = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

const MAX_PATH = 5000;

/** The requests of a console. Whoever made them has been checked, but not yet whether there is a session. */
export class Routes {
  readonly access = new ConsoleAccess();
  readonly #tickets = new Tickets();
  readonly #targets: Targets;
  readonly #settings: ConsoleSettings;
  readonly #streams: readonly string[];

  /** `streams`: the origins of the ports for streams. */
  constructor(settings: ConsoleSettings, streams: readonly string[]) {
    this.#settings = settings;
    this.#streams = streams;
    this.#targets = new Targets(settings.connection);
  }

  close(): void {
    this.#targets.close();
  }

  /** `isOther`: at a port for streams, which has nothing but the calls of the daemon. */
  async answer(request: IncomingMessage, response: ServerResponse, isOther: boolean): Promise<void> {
    const { method = '', url: target = '' } = request;
    const [path, query] = splitTarget(target);
    if (isOther && method === 'OPTIONS') return void response.writeHead(204).end();
    const open = isOther || query !== '' ? null : this.#openRoute(method, path);
    if (open !== null) return open(request, response);
    if (!this.access.isSession(headerOf(request, 'x-console-session') ?? ''))
      return answerError(
        response,
        401,
        'unauthenticated',
        'there is no session: open a new link of the console',
      );
    const [, kind, rest = ''] = /^\/(daemon|gateway)(\/.*)$/.exec(path) ?? [];
    if (kind === 'daemon' && isDaemonCall(method, rest))
      return this.#passToDaemon(request, response, rest + query);
    if (isOther) return answerError(response, 404, 'not_found', 'there is nothing at this path');
    const call = kind === 'gateway' ? gatewayCallOf(method, rest) : null;
    if (call !== null) return this.#passToGateway(request, response, rest + query, call.tells);
    return this.#answerOwn(request, response, `${method} ${path}`);
  }

  /** What needs no session: the page, the exchange of a secret, and a download that was ordered; null: nothing of that. */
  #openRoute(method: string, path: string): RequestHandler | null {
    if (method === 'POST') return path === '/session' ? this.#exchange.bind(this) : null;
    if (method !== 'GET') return null;
    const file = this.#settings.page.get(path);
    if (file) return (request, response) => this.#sendFile(request, response, file);
    return path.startsWith('/download/')
      ? (request, response) => this.#download(request, response, path)
      : null;
  }

  async #answerOwn(request: IncomingMessage, response: ServerResponse, operation: string): Promise<void> {
    if (operation === 'GET /about') return sendJson(response, 200, this.#about());
    if (operation === 'POST /links') return sendJson(response, 200, { secret: this.access.newSecret() });
    if (operation === 'POST /tickets') return this.#issueTicket(request, response);
    return answerError(response, 404, 'not_found', 'the console has no such operation');
  }

  #about() {
    return { ...this.#targets.description, version: this.#settings.version, streams: this.#streams };
  }

  #sendFile(
    { headers }: IncomingMessage,
    response: ServerResponse,
    { type, content, gzipped }: PageFile,
  ): void {
    const isGzip = /\bgzip\b/.test(String(headers['accept-encoding']));
    response.writeHead(200, {
      'content-type': type,
      'content-security-policy': contentPolicy(this.#streams),
      ...(isGzip && { 'content-encoding': 'gzip' }),
    });
    response.end(isGzip ? gzipped : content);
  }

  async #exchange(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { secret } = (await readObject(request)) ?? {};
    const session = typeof secret === 'string' ? this.access.exchange(secret) : null;
    if (session === null)
      return answerError(
        response,
        401,
        'unauthenticated',
        'this link was used before, or is not one of this console',
      );
    return sendJson(response, 200, { session, about: this.#about() });
  }

  async #passToDaemon(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const sandbox = headerOf(request, 'x-console-sandbox');
    const target = await this.#targets.daemon(sandbox === null ? null : decodeURIComponent(sandbox));
    const headers = passedHeaders(request, target.user);
    passOn(request, response, { target, method: request.method ?? '', path, headers });
  }

  #passToGateway(
    request: IncomingMessage,
    response: ServerResponse,
    path: string,
    tells: readonly string[] | null,
  ): void {
    const target = this.#targets.gateway();
    const headers = passedHeaders(request, null);
    passOn(request, response, { target, method: request.method ?? '', path, headers, tells });
  }

  async #issueTicket(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { path, sandbox = null, format = null } = (await readObject(request)) ?? {};
    if (typeof path !== 'string' || path.length > MAX_PATH || !isTextOrNull(sandbox) || !isTextOrNull(format))
      return answerError(response, 400, 'invalid_argument', 'wanted the path of a download');
    sendJson(response, 200, { ticket: this.#tickets.issue({ path, sandbox, format }) });
  }

  async #download(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
    const order = this.#tickets.take(path.slice('/download/'.length));
    if (order === null)
      return answerError(response, 404, 'not_found', 'this download was begun before, or never ordered');
    const target = await this.#targets.daemon(order.sandbox);
    const query = new URLSearchParams({ path: order.path });
    if (order.format !== null) query.set('format', order.format);
    if (target.user !== null) query.set('username', target.user);
    passOn(request, response, {
      ...{ target, method: 'GET', path: `/files?${query}`, headers: { accept: '*/*' } },
      answerHeaders: (headers) => ({
        'content-disposition': dispositionOf(headers['content-disposition'], order),
      }),
    });
  }
}

/** The name that the daemon tells, or else that of the path; in each case the browser saves the content instead of showing it. */
function dispositionOf(told: string | undefined, { path, format }: DownloadOrder): string {
  const named = /^\s*[\w-]+(\s*;.*)$/.exec(told ?? '')?.[1];
  if (named !== undefined) return `attachment${named}`;
  const name = basename(path) + (format === null ? '' : `.${format}`);
  return `attachment; filename*=utf-8''${encodeURIComponent(name.toWellFormed())}`;
}

function splitTarget(target: string): readonly [path: string, query: string] {
  const at = target.indexOf('?');
  return at < 0 ? [target, ''] : [target.slice(0, at), target.slice(at)];
}

function headerOf({ headers }: IncomingMessage, name: string): string | null {
  const value = headers[name];
  return typeof value === 'string' && value !== '' ? value : null;
}

function isTextOrNull(value: unknown): value is string | null {
  return value === null || typeof value === 'string';
}
