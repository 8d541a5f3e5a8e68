import { type ServerResponse, STATUS_CODES } from 'node:http';
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

/** On everything that the gateway answers itself: pages of any origin may read it, nobody keeps it. */
export const OWN_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'access-control-allow-origin': '*',
} as const;

/** Refuses a request for a sandbox, unless its answer has begun: then it is broken off. */
export function refuse(response: ServerResponse, code: number, message: string, sandboxID?: string): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  // What the sandbox has been quoted with by then is not part of this answer.
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  const body = JSON.stringify({ ...(sandboxID !== undefined && { sandboxID }), message, code });
  // With its own reason phrase, or it would be the one that was refused.
  response.writeHead(code, STATUS_CODES[code], { ...OWN_HEADERS, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}
