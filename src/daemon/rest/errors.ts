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
export function statusOf(error: unknown): number {
  if (error instanceof EnvdError) return STATUS[error.kind];
  if (isSystemError(error, 'ENOSPC', 'EDQUOT')) return 507;
  // Fastify's own have one as well: a malformed URL or content type.
  if (error instanceof Error && 'statusCode' in error && typeof error.statusCode === 'number') {
    return error.statusCode >= 400 ? error.statusCode : 500;
  }
  return 500;
}

/** Answers with the one shape of REST errors, `{"code", "message"}`. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const code = statusOf(error);
  return reply
    .code(code)
    .header('x-content-type-options', 'nosniff')
    .header('cache-control', 'no-store')
    .type('application/json; charset=utf-8')
    .send(JSON.stringify({ code, message: messageOf(error) }));
}
