import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { messageOf } from '../../base/errors.ts';
import type { Transfers } from '../../base/tally.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Connect's code of the error that ended an RPC. */
    rpcCode?: string;
    /** The error that an operation was answered with. */
    failure?: unknown;
  }
}

/**
 * What the platform calls last before a pause. These are told when they begin: a line that is written once they have
 * been answered is written, and read by the journal, when the guest resumes, and the first caller waits for that.
 */
const BEFORE_A_PAUSE: readonly string[] = ['/freeze', '/fsfreeze', '/collapse'];

/** So much of an error's text is logged, in characters. */
const REASON_LENGTH = 300;

/** One line an operation, when it is over: no payloads, no queries (they carry signatures), no headers. */
export function logOperations(app: FastifyInstance, logger: Logger): void {
  app.addHook('onRequest', (request, reply, done) => {
    const started = performance.now();
    const { url = 'unknown' } = request.routeOptions;
    const operation = `${request.method} ${url}`;
    if (BEFORE_A_PAUSE.includes(url)) logger.info({ operation }, 'operation begins');
    // 'close' comes in every case, also when the client has gone half-way.
    reply.raw.once('close', () => {
      const { statusCode: status, writableFinished: completed } = reply.raw;
      const { rpcCode, failure } = request;
      const isUnexpected = rpcCode === undefined ? status === 500 : rpcCode === 'internal';
      const line = {
        operation,
        status,
        ...(rpcCode !== undefined && { code: rpcCode }),
        ...(failure !== undefined && { reason: reasonOf(failure) }),
        ...(failure !== undefined && isUnexpected && { err: failure }),
        ...(completed ? {} : { aborted: true }),
        milliseconds: Math.round((performance.now() - started) * 10) / 10,
      };
      logger[isUnexpected ? 'error' : levelOf(url, status, completed)](line, 'operation');
    });
    done();
  });
}

function levelOf(url: string, status: number, completed: boolean): 'warn' | 'info' | 'debug' {
  if (status >= 500) return 'warn';
  const isTold = completed && status < 300 && BEFORE_A_PAUSE.includes(url);
  return isTold || url === '/health' ? 'debug' : 'info';
}

/**
 * The text of an error without what is quoted in it: that comes from the request, and may be a part of a body or a
 * query. Of what a message could not be decoded for, JSON's own words quote some of it without quotes.
 */
function reasonOf(error: unknown): string {
  const text = messageOf(error).replace(/^(cannot decode [^:]*):.*$/s, '$1');
  const cut = text.replace(/".*"/s, '"…"').replace(/'.*'/s, "'…'");
  return cut.length > REASON_LENGTH ? `${cut.slice(0, REASON_LENGTH)}…` : cut;
}

/**
 * Counts the answers to downloads and what was sent of them, heads and codings included: what comes from a file's
 * descriptor passes no code of ours that could count it.
 */
export function countDownloads(app: FastifyInstance, downloads: Transfers): void {
  app.addHook('onRequest', (request, reply, done) => {
    if (request.method === 'GET' && request.routeOptions.url === '/files')
      countOne(request, reply, downloads);
    done();
  });
}

function countOne(
  { raw: { socket } }: FastifyRequest,
  { raw: response }: FastifyReply,
  downloads: Transfers,
): void {
  const before = socket.bytesWritten;
  response.once('close', () => {
    if (response.statusCode >= 300) return;
    downloads.count++;
    downloads.bytes += socket.bytesWritten - before;
  });
}
