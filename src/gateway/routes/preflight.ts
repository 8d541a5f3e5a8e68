import type { IncomingMessage, ServerResponse } from 'node:http';

const MAX_AGE_S = '7200';

/** Whether a browser asks for permission: it does that without the headers that would name a sandbox. */
export function isPreflight({ method, headers }: IncomingMessage): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined;
}

/** Pages of any origin may ask anything, as the daemon allows it. */
export function answerPreflight(request: IncomingMessage, response: ServerResponse): void {
  const wanted = request.headers['access-control-request-headers'];
  response
    .writeHead(204, {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      ...(wanted !== undefined && { 'access-control-allow-headers': wanted }),
      'access-control-max-age': MAX_AGE_S,
      vary: 'Access-Control-Request-Headers',
      'cache-control': 'no-store',
    })
    .end();
}
