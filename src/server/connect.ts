import type { IncomingHttpHeaders } from 'node:http';
import { createConnectRouter, createContextValues } from '@connectrpc/connect';
import { compressionNegotiate, type UniversalHandler } from '@connectrpc/connect/protocol';
import { codeToHttpStatus, codeToString, errorToJson } from '@connectrpc/connect/protocol-connect';
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../base/errors.ts';
import { endOfStream, REQUEST_LIMIT_BYTES, streamCodecOf } from '../rpc/connect-stream.ts';
import { toConnectError } from '../rpc/errors.ts';
import { ListAnswer, listAnswerKey } from '../rpc/list-answer.ts';
import { createRpc, type RpcDependencies, type StreamRoute } from '../rpc/router.ts';

const PROTOCOL_VERSION = '1';
const COMPRESSIONS = [compressionGzip, compressionBrotli];

/**
 * Mounts the RPCs inside Fastify, so that its hooks (the gate, CORS, the log) see them as they see REST. Bodies
 * stay unparsed; the streams go their own way for Connect's codecs, everything else through connect-node.
 */
export function mountConnect(app: FastifyInstance, services: RpcDependencies, shutdown: AbortSignal): void {
  app.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, parsed) => parsed(null));
    scope.addHook('onRequest', async (request) => requireProtocolVersion(request));
    scope.setErrorHandler((error, request, reply) => refuse(error, request, reply));
    const router = createConnectRouter({
      acceptCompression: COMPRESSIONS,
      shutdownSignal: shutdown,
      readMaxBytes: REQUEST_LIMIT_BYTES,
    });
    const rpc = createRpc(services);
    rpc.register(router);
    const streams = new Map(rpc.streams.map((stream) => [stream.path, stream]));
    for (const handler of router.handlers) {
      const stream = streams.get(handler.requestPath) ?? null;
      scope.post(handler.requestPath, (request, reply) => serve(request, reply, handler, stream, shutdown));
    }
    done();
  });
}

async function serve(
  request: FastifyRequest,
  reply: FastifyReply,
  handler: UniversalHandler,
  stream: StreamRoute | null,
  shutdown: AbortSignal,
): Promise<void> {
  const codec = stream && streamCodecOf(request.headers['content-type']);
  takeOver(reply);
  if (stream && codec) {
    const headers = new Headers(request.headers as Record<string, string>);
    const error = await stream.serve({ request: request.raw, response: reply.raw, headers, codec, shutdown });
    if (error !== null) request.rpcCode = codeToString(toConnectError(error).code);
    return;
  }
  try {
    const list = new ListAnswer();
    const values = createContextValues().set(listAnswerKey, list);
    const response = await handler(
      universalRequestFromNodeRequest(request.raw, reply.raw, undefined, values),
    );
    const isSent = await list.send(response, reply.raw, encodingOf(request.headers));
    if (!isSent) await universalResponseToNodeResponse(response, reply.raw);
  } catch (error) {
    // The client went away in the middle of an answer.
    request.rpcCode = codeToString(toConnectError(error).code);
    reply.raw.destroy();
  }
}

/** What an answer may be compressed with. */
function encodingOf(headers: IncomingHttpHeaders): string | null {
  const [requested = null, accepted = null] = [headers['content-encoding'], headers['accept-encoding']];
  return compressionNegotiate(COMPRESSIONS, requested, accepted, 'accept-encoding').response?.name ?? null;
}

/** From here on the answer is written to the raw response; what the hooks have set goes with it. */
function takeOver(reply: FastifyReply): void {
  reply.hijack();
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) reply.raw.setHeader(name, value);
  }
}

function requireProtocolVersion(request: FastifyRequest): void {
  const version = request.headers['connect-protocol-version'];
  if (version === undefined || version === PROTOCOL_VERSION) return;
  throw new EnvdError(
    'invalid_argument',
    `unsupported Connect-Protocol-Version '${version}': this server speaks version ${PROTOCOL_VERSION}`,
  );
}

/** An error from before the call itself, in the shape that the client's protocol gives to errors. */
function refuse(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const failure = toConnectError(error);
  request.rpcCode = codeToString(failure.code);
  if (streamCodecOf(request.headers['content-type'])) {
    return reply
      .code(200)
      .type(request.headers['content-type'] ?? '')
      .send(endOfStream(failure));
  }
  return reply
    .code(codeToHttpStatus(failure.code))
    .type('application/json')
    .send(JSON.stringify(errorToJson(failure, {})));
}
