import type { FastifyReply } from 'fastify';
import { EnvdError, ERROR_HEADERS, errorBody, messageOf, statusOf } from '../../base/errors.ts';
import { exhaustionOf } from '../os/errno.ts';

/** Answers with the error in the one shape. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const message = messageOf(error);
  const exhaustion = exhaustionOf(error);
  const code = statusOf(exhaustion ? new EnvdError(exhaustion, message) : error);
  return reply.code(code).headers(ERROR_HEADERS).send(errorBody(code, message));
}
