import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { ERROR_HEADERS, errorBody } from '../../base/errors.ts';
import { passOnIds } from '../../base/http/call-ids.ts';

/** The gateway's own responses have these headers, so that pages of any origin can read them and nobody caches them. */
export const OWN_HEADERS = { ...ERROR_HEADERS, 'access-control-allow-origin': '*' } as const;

/** A refusal as the client gets it. */
export interface RefusalAnswer {
  /** The HTTP status. */
  readonly code: number;
  readonly message: string;
  /** The value of `Retry-After`, in whole seconds. If it is absent, the header is not sent. */
  readonly retryAfter?: number | undefined;
  /** More headers. */
  readonly headers?: Readonly<Record<string, string>>;
}

/**
 * Refuses a request, or closes its connection if the response has begun. The body names the sandbox if `sandboxID` is given.
 */
export function refuse(
  response: ServerResponse,
  { code, message, retryAfter, headers }: RefusalAnswer,
  sandboxID?: string,
): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // Headers of the sandbox's response may already be set.
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  const body =
    sandboxID === undefined ? errorBody(code, message) : JSON.stringify({ sandboxID, message, code });
  passOnIds(response.req, response);
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
  // Without a reason phrase of its own, the response would have that of the sandbox.
  response.writeHead(code, STATUS_CODES[code], {
    ...OWN_HEADERS,
    ...headers,
    'content-length': Buffer.byteLength(body),
  });
  response.end(body);
}

const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE';

/** The refusal of every TRACE, whose answer would show what servers on the way have added to the request. */
export const NO_TRACE: RefusalAnswer = {
  code: 405,
  message: `method TRACE is not allowed: use ${METHODS}`,
  headers: { allow: `${METHODS}, OPTIONS` },
};

/** Browsers may cache the answer to a preflight for this time, in seconds. */
const PREFLIGHT_MAX_AGE_S = '7200';

/** Returns whether a request is a CORS preflight of a browser, which has no headers that name a sandbox. */
export function isPreflight({ method, headers }: IncomingMessage): boolean {
  return method === 'OPTIONS' && headers['access-control-request-method'] !== undefined;
}

/** Answers a preflight. Allows everything to pages of any origin, as the daemon does. */
export function answerPreflight(request: IncomingMessage, response: ServerResponse): void {
  const wanted = request.headers['access-control-request-headers'];
  response
    .writeHead(204, {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': METHODS,
      ...(wanted !== undefined && { 'access-control-allow-headers': wanted }),
      'access-control-max-age': PREFLIGHT_MAX_AGE_S,
      vary: 'Access-Control-Request-Headers',
      'cache-control': 'no-store',
    })
    .end();
}
