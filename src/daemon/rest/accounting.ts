import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Transfers } from '../../base/tally.ts';

declare module 'fastify' {
  interface FastifyRequest extends Outcome {
    /** Bytes that the kernel has sent from a file to the connection, which Node does not count. */
    sentFromFile?: number;
  }
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
}

/** Logs one line per operation, at its end: without payloads, headers and queries (which contain signatures). */
export function logOperations(app: FastifyInstance, logger: Logger): void {
  app.addHook('onRequest', (request, reply, done) => {
    logAtEnd(logger, request.method, request.routeOptions.url ?? 'unknown', reply.raw, request);
    done();
  });
}

/** Logs the operation when its response has been sent, or its client has disconnected. `url`: of the route. */
export function logAtEnd(
  logger: Logger,
  method: string,
  url: string,
  response: ServerResponse,
  outcome: Outcome,
): void {
  const started = performance.now();
  const operation = `${method} ${url}`;
  if (BEFORE_A_PAUSE.includes(url)) logger.info({ operation }, 'operation started');
  // 'close' is emitted in every case, also when the client disconnects.
  response.on('close', () => {
    const { statusCode: status, writableFinished: completed } = response;
    const { rpcCode, failure } = outcome;
    const isUnexpected = rpcCode === undefined ? status === 500 : rpcCode === 'internal';
    const level = isUnexpected ? 'error' : levelOf(url, status, completed);
    if (!logger.isLevelEnabled(level)) return;
    const line = {
      operation,
      status,
      ...(rpcCode !== undefined && { code: rpcCode }),
      ...(failure !== undefined && { reason: reasonOf(failure) }),
      ...(failure !== undefined && isUnexpected && { err: failure }),
      ...(completed ? {} : { aborted: true }),
      milliseconds: Math.round((performance.now() - started) * 10) / 10,
    };
    logger[level](line, 'operation');
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
