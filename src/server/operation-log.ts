import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';

declare module 'fastify' {
  interface FastifyRequest {
    /** Connect's code of the error that ended an RPC. */
    rpcCode?: string;
  }
}

/** One line an operation, when it is over: no payloads, no queries (they carry signatures), no headers. */
export function logOperations(app: FastifyInstance, logger: Logger): void {
  app.addHook('onRequest', (request, reply, done) => {
    const started = performance.now();
    // 'close' comes in every case, also when the client has gone half-way.
    reply.raw.once('close', () => {
      const status = reply.raw.statusCode;
      const line = {
        operation: `${request.method} ${request.routeOptions.url ?? 'unknown'}`,
        status,
        ...(request.rpcCode !== undefined && { code: request.rpcCode }),
        ...(reply.raw.writableFinished ? {} : { aborted: true }),
        milliseconds: Math.round((performance.now() - started) * 10) / 10,
      };
      const level = status >= 500 ? 'error' : request.routeOptions.url === '/health' ? 'debug' : 'info';
      logger[level](line, 'operation');
    });
    done();
  });
}
