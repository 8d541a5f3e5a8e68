import type { IncomingHttpHeaders } from 'node:http';
import { createConnectRouter } from '@connectrpc/connect';
import { compressionNegotiate, type UniversalHandler } from '@connectrpc/connect/protocol';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { SharedLimits } from '../admission/call-scope.ts';
import { COMPRESSIONS, serveByConnectNode } from '../connect/connect-node.ts';
import { endOfStream, streamCodecOf } from '../connect/connect-stream.ts';
import { type UnaryRoute, unaryCodecOf } from '../connect/connect-unary.ts';
import { recordFailure, toConnectError } from '../connect/errors.ts';
import { DECOMPRESSED_LIMIT_BYTES, headersOf } from '../connect/request.ts';
import type { StreamPlaces } from '../connect/stream-places.ts';
import type { Encoding } from '../connect/unary-answer.ts';
import type { Rpc, StreamRoute } from './router.ts';

const PROTOCOL_VERSION = '1';
/** Content types of RPCs over HTTP/1.1, those of Connect first; each call accepts some of them. */
const CONTENT_TYPES = [
  ...['application/json', 'application/proto', 'application/connect+json', 'application/connect+proto'],
  ...['application/grpc-web+proto', 'application/grpc-web+json'],
];

/**
 * Mounts the RPCs inside Fastify, after the steps that every request passes. Requests in the Connect protocol are served
 * directly, all others by connect-node, with the same handlers.
 */
export function mountConnect(
  app: FastifyInstance,
  rpc: Rpc,
  shared: SharedLimits,
  places: StreamPlaces,
): void {
  app.register((scope, _options, done) => {
    scope.setErrorHandler(refuse);
    const router = createConnectRouter({
      acceptCompression: COMPRESSIONS,
      shutdownSignal: shared.shutdown.signal,
      readMaxBytes: DECOMPRESSED_LIMIT_BYTES,
    });
    rpc.register(router);
    const streams = new Map(rpc.streams.map((stream) => [stream.path, stream]));
    const unary = new Map(rpc.unary.map((call) => [call.path, call]));
    for (const handler of router.handlers) {
      const path = handler.requestPath;
      const routes = {
        stream: streams.get(path) ?? null,
        unary: unary.get(path) ?? null,
        handler,
        accepted: CONTENT_TYPES.filter((type) => handler.supportedContentType(type)),
      };
      const isStream = handler.method.methodKind !== 'unary';
      // The last hook takes the response over: Fastify neither reads the body nor looks at its type.
      const onRequest = (request: FastifyRequest, reply: FastifyReply) => {
        requireProtocolVersion(request);
        if (isStream && !places.take(reply.raw)) throw places.error();
        void serveOrDestroy(request, reply, routes);
      };
      scope.post(path, { onRequest }, () => {});
    }
    done();
  });
}

/** The implementations of an RPC for the different protocols. */
interface Routes {
  readonly stream: StreamRoute | null;
  readonly unary: UnaryRoute | null;
  readonly handler: UniversalHandler;
  /** Accepted content types. */
  readonly accepted: readonly string[];
}

/** Destroys the connection after an unexpected error: Fastify does not end a hijacked response. */
async function serveOrDestroy(request: FastifyRequest, reply: FastifyReply, routes: Routes): Promise<void> {
  try {
    await serve(request, reply, routes);
  } catch (error) {
    recordFailure(request.call, error);
    reply.raw.destroy();
  }
}

/** gRPC, which needs HTTP/2, and gRPC-Web as text, which connect-node refuses without saying why. */
const UNSERVED = /^application\/grpc(?!-web(?:[+; ]|$))/i;

async function serve(
  request: FastifyRequest,
  reply: FastifyReply,
  { stream, unary, handler, accepted }: Routes,
): Promise<void> {
  const contentType = request.headers['content-type'] ?? '';
  const streamCodec = stream && streamCodecOf(contentType);
  const unaryCodec = unary && unaryCodecOf(request.raw);
  const isServed = handler.supportedContentType(contentType) && !UNSERVED.test(contentType);
  if (!streamCodec && !unaryCodec && !isServed) {
    refuseType(request, reply, accepted);
    return;
  }
  hijack(reply);
  const headers = headersOf(request.raw);
  const exchange = { call: request.call, headers };
  let error: unknown = null;
  if (stream && streamCodec) {
    error = await stream.serve({ ...exchange, codec: streamCodec });
  } else if (unary && unaryCodec) {
    const encoding = encodingOf(request.headers);
    error = await unary.serve({ ...exchange, codec: unaryCodec, encoding });
  } else {
    await serveByConnectNode(request.call, handler);
  }
  if (error !== null) recordFailure(request.call, error);
}

/** The compression of the response, or null. */
function encodingOf(headers: IncomingHttpHeaders): Encoding | null {
  const accepted = headers['accept-encoding'];
  if (accepted === undefined) return null;
  const { response } = compressionNegotiate(COMPRESSIONS, null, accepted, 'accept-encoding');
  return response && (response.name as Encoding);
}

/** Takes the response over from Fastify, with the headers set by hooks. */
function hijack(reply: FastifyReply): void {
  reply.hijack();
  reply.raw.setHeaders(new Map(Object.entries(reply.getHeaders() as Record<string, string>)));
}

function requireProtocolVersion(request: FastifyRequest): void {
  const version = request.headers['connect-protocol-version'];
  if (version === undefined || version === PROTOCOL_VERSION) return;
  throw new EnvdError(
    'invalid_argument',
    `unsupported Connect-Protocol-Version '${version}': this server speaks version ${PROTOCOL_VERSION}`,
  );
}

/** Sends an error that occurred before the call, in the shape of the client's protocol. */
function refuse(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const failure = toConnectError(error);
  recordFailure(request.call, error);
  if (streamCodecOf(request.headers['content-type'])) {
    return reply
      .code(200)
      .type(request.headers['content-type'] ?? '')
      .send(endOfStream(failure));
  }
  return reply
    .code(codeToHttpStatus(failure.code))
    .type('application/json')
    .send(JSON.stringify(errorToJson(toConnectError(failure), {})));
}

/** Sends 415 (Connect protocol, "Unary-Response"); the message names the first two accepted types, those of Connect. */
function refuseType(request: FastifyRequest, reply: FastifyReply, accepted: readonly string[]): FastifyReply {
  const type = request.headers['content-type'] ?? '';
  const text = `content type '${type}' is not supported by this call: use ${accepted.slice(0, 2).join(' or ')}`;
  const failure = new EnvdError('invalid_argument', text);
  recordFailure(request.call, failure);
  return reply
    .code(415)
    .header('accept-post', accepted.join(', '))
    .type('application/json')
    .send(JSON.stringify(errorToJson(toConnectError(failure), {})));
}
