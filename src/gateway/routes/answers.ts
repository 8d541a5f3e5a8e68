import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import { EnvdError, type ErrorKind } from '../../base/errors.ts';

const STATUS: Partial<Record<ErrorKind, number>> = {
  already_exists: 409,
  failed_precondition: 409,
  invalid_argument: 400,
  not_found: 404,
  permission_denied: 403,
  unauthenticated: 401,
};

/** The status that stands for anything that was thrown. */
export function statusOf(error: unknown): number {
  if (error instanceof EnvdError) return STATUS[error.kind] ?? 500;
  if (error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number') {
    return error.statusCode >= 400 ? error.statusCode : 500;
  }
  return 500;
}

/** The headers of the gateway's own responses: readable by pages of any origin, and never cached. */
export const OWN_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'access-control-allow-origin': '*',
} as const;

/** Refuses a request; when its response has begun, closes the connection instead. */
export function refuse(response: ServerResponse, code: number, message: string, sandboxID?: string): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // Headers of the sandbox' response may be set already.
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  const body = JSON.stringify({ ...(sandboxID !== undefined && { sandboxID }), message, code });
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
