import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { passOnIds } from '../../base/call-ids.ts';
import type { CallTally } from '../../base/call-tally.ts';
import { messageOf } from '../../base/errors.ts';
import type { Transfers } from '../../base/tally.ts';
import { identityOf } from './call-ids.ts';

declare module 'fastify' {
  interface FastifyRequest extends Outcome {}
}

/**
 * The last operations before a pause. They are logged when they start: the line at their end would be written after the
 * resume, and delay the first caller.
 */
const BEFORE_A_PAUSE: readonly string[] = ['/freeze', '/fsfreeze', '/collapse'];

/** The maximum of characters of an error's text in the log. */
const REASON_LENGTH = 300;

/** How an operation ended, as far as its response does not tell. */
export interface Outcome {
  /** The Connect code of the error that ended an RPC. */
  rpcCode?: string | undefined;
  /** The error that ended the operation. */
  failure?: unknown;
  /** Bytes that the kernel has sent from a file to the connection, which Node does not count. */
  sentFromFile?: number;
}

/** An operation while it is served. */
interface Served {
  readonly method: string;
  /** Of the route. */
  readonly url: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly outcome: Outcome;
}

/** Logs and counts operations. */
export class CallLog {
  readonly #logger: Logger;
  readonly #tally: CallTally;

  constructor(logger: Logger, tally: CallTally) {
    this.#logger = logger;
    this.#tally = tally;
  }

  /**
   * Logs the operation when its response has been sent, or its client has disconnected. The answer gets the request's
   * `X-Request-Id` and `traceparent`.
   */
  begin(
    method: string,
    url: string,
    request: IncomingMessage,
    response: ServerResponse,
    outcome: Outcome,
  ): void {
    const started = performance.now();
    const sentBefore = request.socket.bytesWritten;
    if (BEFORE_A_PAUSE.includes(url))
      this.#logger.info({ operation: `${method} ${url}` }, 'operation started');
    passOnIds(request, response);
    // 'close' is emitted in every case, also when the client disconnects.
    response.on('close', () => {
      const milliseconds = performance.now() - started;
      this.#end(
        { method, url, request, response, outcome },
        milliseconds,
        request.socket.bytesWritten - sentBefore,
      );
    });
  }

  #end({ method, url, request, response, outcome }: Served, milliseconds: number, sent: number): void {
    const operation = `${method} ${url}`;
    const { statusCode: status, writableFinished: completed } = response;
    const { rpcCode, failure } = outcome;
    this.#tally.add(operation, rpcCode ?? (completed ? String(status) : 'aborted'), milliseconds / 1000);
    const isUnexpected = rpcCode === undefined ? status === 500 : rpcCode === 'internal';
    const level = isUnexpected ? 'error' : levelOf(url, status, completed);
    if (!this.#logger.isLevelEnabled(level)) return;
    const line = {
      operation,
      status,
      ...(rpcCode !== undefined && { code: rpcCode }),
      ...(failure !== undefined && { reason: reasonOf(failure) }),
      ...(failure !== undefined && isUnexpected && { err: failure }),
      ...(completed ? {} : { aborted: true }),
      milliseconds: Math.round(milliseconds * 10) / 10,
      bytes: sent + (outcome.sentFromFile ?? 0),
      ...identityOf(request),
    };
    this.#logger[level](line, 'operation');
  }
}

/** Logs one line per operation, at its end: without payloads, headers and queries (which contain signatures). */
export function logOperations(app: FastifyInstance, calls: CallLog): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { method, routeOptions, raw } = request;
    calls.begin(method, routeOptions.url ?? 'unknown', raw, reply.raw, request);
    done();
  });
}

function levelOf(url: string, status: number, completed: boolean): 'warn' | 'info' | 'debug' {
  if (status >= 500) return 'warn';
  const isLoggedAlready = completed && status < 300 && BEFORE_A_PAUSE.includes(url);
  return isLoggedAlready || url === '/health' ? 'debug' : 'info';
}

/**
 * The text of an error without quoted values, which may be parts of a body or a query. For messages that could not be
 * decoded the details are dropped: JSON.parse repeats parts of the text without quotes.
 */
function reasonOf(error: unknown): string {
  const text = messageOf(error).replace(/^(cannot decode [^:]*):.*$/s, '$1');
  const cut = text.replace(/".*"/s, '"…"').replace(/'.*'/s, "'…'");
  return cut.length > REASON_LENGTH ? `${cut.slice(0, REASON_LENGTH)}…` : cut;
}

/**
 * Counts downloads and the bytes sent for them, as written to the socket: with headers, after content coding.
 */
export function countDownloads(app: FastifyInstance, downloads: Transfers): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (request.method === 'GET' && request.routeOptions.url === '/files')
      countDownload(request.raw, reply.raw, downloads, () => request.sentFromFile ?? 0);
    done();
  });
}

/** Counts one; `besides`: bytes that did not pass through Node's socket. */
export function countDownload(
  { socket }: IncomingMessage,
  response: ServerResponse,
  downloads: Transfers,
  besides = () => 0,
): void {
  const before = socket.bytesWritten;
  response.once('close', () => {
    if (response.statusCode >= 300) return;
    downloads.count++;
    downloads.bytes += socket.bytesWritten - before + besides();
  });
}
