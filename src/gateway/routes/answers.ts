import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { passOnIds } from '../../base/call-ids.ts';
import { ERROR_HEADERS, errorBody } from '../../base/errors.ts';

/** The headers of the gateway's own responses: readable by pages of any origin, and never cached. */
export const OWN_HEADERS = { ...ERROR_HEADERS, 'access-control-allow-origin': '*' } as const;

/** What a client is told whose request is refused. */
export interface Told {
  /** The status. */
  readonly code: number;
  readonly message: string;
  /** When to come again, in whole seconds; absent: it is not told. */
  readonly retryAfter?: number | undefined;
}

/** Refuses a request; when its response has begun, closes the connection instead. */
export function refuse(
  response: ServerResponse,
  { code, message, retryAfter }: Told,
  sandboxID?: string,
): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // Headers of the sandbox' response may be set already.
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  const body =
    sandboxID === undefined ? errorBody(code, message) : JSON.stringify({ sandboxID, message, code });
  passOnIds(response.req, response);
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
  // The reason phrase may be that of the sandbox, too.
  response.writeHead(code, STATUS_CODES[code], { ...OWN_HEADERS, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

const PREFLIGHT_MAX_AGE_S = '7200';

/** Whether a request is a browser's CORS preflight, which comes without the headers that name a sandbox. */
export function isPreflight({ method, headers }: IncomingMessage): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined;
}

/** Allows pages of any origin everything, as the daemon does. */
export function answerPreflight(request: IncomingMessage, response: ServerResponse): void {
  const wanted = request.headers['access-control-request-headers'];
  response
    .writeHead(204, {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE',
      ...(wanted !== undefined && { 'access-control-allow-headers': wanted }),
      'access-control-max-age': PREFLIGHT_MAX_AGE_S,
      vary: 'Access-Control-Request-Headers',
      'cache-control': 'no-store',
    })
    .end();
}
