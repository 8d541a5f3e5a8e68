import type { FastifyReply } from 'fastify';
import { ERROR_HEADERS, errorBody, isSystemError, messageOf, statusOf } from '../../base/errors.ts';

/** Answers with the error in the one shape. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const code = isSystemError(error, 'ENOSPC', 'EDQUOT') ? 507 : statusOf(error);
  return reply
    .code(code)
    .headers(ERROR_HEADERS)
    .send(errorBody(code, messageOf(error)));
}
