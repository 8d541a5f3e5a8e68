import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { ERROR_HEADERS, errorBody } from '../../base/errors.ts';
import { passOnIds } from '../../base/http/call-ids.ts';

/** The headers of the gateway's own responses: readable by pages of any origin, and never cached. */
export const OWN_HEADERS = { ...ERROR_HEADERS, 'access-control-allow-origin': '*' } as const;

/** A refusal, as the client sees it. */
export interface RefusalAnswer {
  /** The status. */
  readonly code: number;
  readonly message: string;
  /** When to retry, in whole seconds; absent: not sent. */
  readonly retryAfter?: number | undefined;
  /** More headers. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** Refuses a request, or closes its connection if the response has begun. */
export function refuse(
  response: ServerResponse,
  { code, message, retryAfter, headers }: RefusalAnswer,
  sandboxID?: string,
): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // Headers of the sandbox's response may be set already.
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  const body =
    sandboxID === undefined ? errorBody(code, message) : JSON.stringify({ sandboxID, message, code });
  passOnIds(response.req, response);
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
  // Without its own phrase the answer would have the sandbox's.
  response.writeHead(code, STATUS_CODES[code], {
    ...OWN_HEADERS,
    ...headers,
    'content-length': Buffer.byteLength(body),
  });
  response.end(body);
}

const PREFLIGHT_MAX_AGE_S = '7200';

/** Whether a request is a browser's CORS preflight, which comes without the headers that name a sandbox. */
export function isPreflight({ method, headers }: IncomingMessage): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined;
}

/** Allows everything to pages of any origin, as the daemon does. */
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
