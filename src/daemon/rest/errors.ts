import type { FastifyReply } from 'fastify';
import { EnvdError, ERROR_HEADERS, errorBody, messageOf, statusOf } from '../../base/errors.ts';
import { exhaustionOf } from '../os/errno.ts';

/** Responds with an error in the shape of REST errors. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const message = messageOf(error);
  const exhaustion = exhaustionOf(error);
  const code = statusOf(exhaustion ? new EnvdError(exhaustion, message) : error);
  return reply.code(code).headers(ERROR_HEADERS).send(errorBody(code, message));
}
