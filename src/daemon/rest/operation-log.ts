import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';

declare module 'fastify' {
  interface FastifyRequest {
    /** Connect's code of the error that ended an RPC. */
    rpcCode?: string;
  }
}

/**
 * What the platform calls last before a pause. These are told when they begin: a line that is written once they have
 * been answered is written, and read by the journal, when the guest resumes, and the first caller waits for that.
 */
const BEFORE_A_PAUSE: readonly string[] = ['/freeze', '/fsfreeze', '/collapse'];

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
      const line = {
        operation,
        status,
        ...(request.rpcCode !== undefined && { code: request.rpcCode }),
        ...(completed ? {} : { aborted: true }),
        milliseconds: Math.round((performance.now() - started) * 10) / 10,
      };
      logger[levelOf(url, status, completed)](line, 'operation');
    });
    done();
  });
}

function levelOf(url: string, status: number, completed: boolean): 'error' | 'info' | 'debug' {
  if (status >= 500) return 'error';
  const isTold = completed && status < 300 && BEFORE_A_PAUSE.includes(url);
  return isTold || url === '/health' ? 'debug' : 'info';
}
