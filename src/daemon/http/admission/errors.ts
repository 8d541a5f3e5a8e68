// Responds to clients with errors, in the shape of REST or in that of Connect.
import type { ServerResponse } from 'node:http';
import { Code, ConnectError } from '@connectrpc/connect';
import {
  codeToHttpStatus,
  codeToString,
  endStreamToJson,
  errorToJson,
} from '@connectrpc/connect/protocol-connect';
import type { FastifyReply } from 'fastify';
import {
  connectCodeOf,
  EnvdError,
  ERROR_HEADERS,
  errorBody,
  httpStatusOf,
  messageOf,
} from '../../../base/errors.ts';
import { exhaustionOf } from '../../linux/system/errno.ts';
import type { CallScope } from './call-scope.ts';

/** These headers describe the body that cannot be sent. */
const OF_THE_BODY = ['content-encoding', 'content-disposition', 'etag', 'last-modified', 'accept-ranges'];

/** Returns the HTTP status of an error, and its text. */
export function statusOf(error: unknown): { readonly code: number; readonly message: string } {
  const message = messageOf(error);
  const exhaustion = exhaustionOf(error);
  return { code: httpStatusOf(exhaustion ? new EnvdError(exhaustion, message) : error), message };
}

/** Responds with an error in the shape of REST. */
export function sendError(reply: FastifyReply, error: unknown): FastifyReply {
  const { code, message } = statusOf(error);
  for (const name of OF_THE_BODY) reply.removeHeader(name);
  return reply.code(code).headers(ERROR_HEADERS).send(errorBody(code, message));
}

/** Responds with an error in the shape of Connect's unary calls. `status` overrides the HTTP status of its code. */
export function sendRpcError(response: ServerResponse, error: unknown, status?: number): void {
  const failure = toConnectError(error);
  const body = JSON.stringify(errorToJson(failure, {}));
  for (const [name, value] of failure.metadata) response.setHeader(name, value);
  const length = String(Buffer.byteLength(body));
  const own = ['content-type', 'application/json', 'content-length', length];
  response.writeHead(status ?? codeToHttpStatus(failure.code), own);
  response.end(body);
}

/** Returns the message that ends a stream. `error` is null if there was none. Source: Connect protocol, "EndStreamResponse". */
export function endOfStreamJson(error: unknown): string {
  // The first Headers object makes Node load all of fetch, so only an error creates one.
  return JSON.stringify(error === null ? {} : endStreamToJson(new Headers(), toConnectError(error), {}));
}

/** Converts any thrown value to an error of Connect. */
export function toConnectError(error: unknown): ConnectError {
  if (error instanceof ConnectError) {
    const { rawMessage, code, metadata } = error;
    const text = messageOf(rawMessage);
    return text === rawMessage ? error : new ConnectError(text, code, metadata, undefined, error);
  }
  const kind = error instanceof EnvdError ? error.kind : (exhaustionOf(error) ?? 'internal');
  return new ConnectError(messageOf(error), Code[connectCodeOf(kind)], undefined, undefined, error);
}

/** Keeps the error of an RPC for the log line of the operation. */
export function recordFailure(call: CallScope, error: unknown): void {
  call.failure = error;
  call.rpcCode = codeToString(toConnectError(error).code);
}
