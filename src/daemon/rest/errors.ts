import type { FastifyReply } from 'fastify';
import { EnvdError, type ErrorKind, isSystemError, messageOf } from '../../base/errors.ts';

const STATUS: Record<ErrorKind, number> = {
  aborted: 409,
  already_exists: 409,
  deadline_exceeded: 504,
  failed_precondition: 412,
  internal: 500,
  invalid_argument: 400,
  no_space: 507,
  not_acceptable: 406,
  not_found: 404,
  permission_denied: 403,
  resource_exhausted: 429,
  unauthenticated: 401,
  unavailable: 503,
  unimplemented: 501,
};

/** A refusal that only HTTP has a status for. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly statusCode: number;

  constructor(statusCode: number, message: string) {
    super(message);
    this.statusCode = statusCode;
  }
}

/** The HTTP status that stands for anything that was thrown. */
function statusOf(error: unknown): number {
  if (error instanceof EnvdError) return STATUS[error.kind];
  if (isSystemError(error, 'ENOSPC', 'EDQUOT')) return 507;
  // Fastify's own have one as well: a malformed URL or content type.
  if (error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number') {
    return error.statusCode >= 400 ? error.statusCode : 500;
  }
  return 500;
}

/** What goes with every REST error. */
export const ERROR_HEADERS = {
  'content-type': 'application/json; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** The one shape of REST errors. */
export function errorBody(code: number, message: string): string {
  return JSON.stringify({ code, message });
}

/** Answers with the error in that shape. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const code = statusOf(error);
  return reply
    .code(code)
    .headers(ERROR_HEADERS)
    .send(errorBody(code, messageOf(error)));
}
