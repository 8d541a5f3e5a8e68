import type { FastifyReply } from 'fastify';
import { EnvdError, ERROR_HEADERS, errorBody, messageOf, statusOf } from '../../../base/errors.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';

/** Headers that described the body which cannot be sent. */
const OF_THE_BODY = ['content-encoding', 'content-disposition', 'etag', 'last-modified', 'accept-ranges'];

/** Responds with an error. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const message = messageOf(error);
  const exhaustion = exhaustionOf(error);
  const code = statusOf(exhaustion ? new EnvdError(exhaustion, message) : error);
  for (const name of OF_THE_BODY) reply.removeHeader(name);
  return reply.code(code).headers(ERROR_HEADERS).send(errorBody(code, message));
}
