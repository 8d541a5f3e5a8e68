import { createConnectRouter } from '@connectrpc/connect';
import type { UniversalHandler } from '@connectrpc/connect/protocol';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { EnvdError } from '../../../base/errors.ts';
import type { CallScope, SharedLimits } from '../admission/call-scope.ts';
import { recordFailure, sendRpcError } from '../admission/errors.ts';
import { DECOMPRESSED_LIMIT_BYTES } from '../bodies/body-limits.ts';
import { COMPRESSIONS, serveByConnectNode } from '../protocol/connect-node.ts';
import { endOfStream, type StreamServer, streamCodecOf } from '../protocol/connect-stream.ts';
import { unaryCodecOf } from '../protocol/connect-unary.ts';
import type { Rpc } from '../protocol/rpc.ts';
import type { StreamPlaces } from '../protocol/stream-places.ts';
import { type FilesystemDependencies, filesystemRpcs } from './filesystem.ts';
import { type Listing, processRpcs } from './process.ts';
import {
  connectStream,
  type OutputKeeper,
  type ProcessDependencies,
  startStream,
} from './process-streams.ts';
import { type WatchDependencies, watchDirStream, watcherRpcs } from './watch.ts';

export type RpcDependencies = ProcessDependencies & FilesystemDependencies & WatchDependencies;

/** What extensions change of the RPCs. */
export interface RpcExtensions {
  readonly listings: readonly Listing[];
  readonly keeper: OutputKeeper | null;
}

const PROTOCOL_VERSION = '1';
/** The content types of RPCs over HTTP/1.1, those of Connect first. Each RPC accepts some of them. */
const CONTENT_TYPES = [
  ...['application/json', 'application/proto', 'application/connect+json', 'application/connect+proto'],
  ...['application/grpc-web+proto', 'application/grpc-web+json'],
];
/** gRPC needs HTTP/2. connect-node refuses gRPC-Web as text without saying why. */
const UNSERVED = /^application\/grpc(?!-web(?:[+; ]|$))/i;

export function createRpcs(
  dependencies: RpcDependencies,
  streams: StreamServer,
  { listings, keeper }: RpcExtensions,
): Rpc[] {
  return [
    ...processRpcs(dependencies.processes, listings),
    streams.rpc(startStream(dependencies, keeper)),
    streams.rpc(connectStream(dependencies)),
    ...filesystemRpcs(dependencies),
    ...watcherRpcs(dependencies),
    streams.rpc(watchDirStream(dependencies)),
  ];
}

/**
 * Adds the RPCs as routes. The daemon's own encoder serves calls in the Connect protocol, and connect-node serves all others with
 * the same handlers.
 */
export function mountRpcs(
  app: FastifyInstance,
  rpcs: readonly Rpc[],
  shared: SharedLimits,
  places: StreamPlaces,
): void {
  app.register((scope, _options, done) => {
    scope.setErrorHandler((error, request, reply) => {
      takeOver(reply);
      refuse(request.call, error);
    });
    const router = createConnectRouter({
      acceptCompression: COMPRESSIONS,
      shutdownSignal: shared.shutdown.signal,
      readMaxBytes: DECOMPRESSED_LIMIT_BYTES,
    });
    for (const rpc of rpcs) rpc.register(router);
    router.handlers.forEach((handler, index) => {
      const rpc = rpcs[index];
      if (rpc) mountRpc(scope, rpc, handler, places);
    });
    done();
  });
}

function mountRpc(app: FastifyInstance, rpc: Rpc, handler: UniversalHandler, places: StreamPlaces): void {
  const isStream = rpc.method.methodKind !== 'unary';
  const codecOf = isStream ? streamCodecOf : unaryCodecOf;
  const accepted = CONTENT_TYPES.filter((type) => handler.supportedContentType(type));
  // This last hook takes over the response, so that Fastify neither reads the body nor looks at its type.
  const onRequest = (request: FastifyRequest, reply: FastifyReply) => {
    const { call, headers } = request;
    requireProtocolVersion(request);
    if (isStream) places.enter(reply.raw);
    takeOver(reply);
    const type = headers['content-type'] ?? '';
    const codec = codecOf(type);
    const served = (codec ? rpc.serve?.(call, codec) : rpc.serveOther?.(call)) ?? null;
    if (served !== null) void settle(call, served);
    else if (handler.supportedContentType(type) && !UNSERVED.test(type))
      void settle(call, serveByConnectNode(call, handler));
    else refuseType(call, type, accepted);
  };
  app.post(handler.requestPath, { onRequest }, () => {});
}

/** Takes over the response from Fastify, with the headers that hooks have set. */
function takeOver(reply: FastifyReply): void {
  reply.hijack();
  reply.raw.setHeaders(new Map(Object.entries(reply.getHeaders() as Record<string, string>)));
}

/** Records the error of a served call. An unexpected error destroys the connection, because nobody else ends the response. */
async function settle(call: CallScope, served: Promise<unknown>): Promise<void> {
  try {
    const error = (await served) ?? null;
    if (error !== null) recordFailure(call, error);
  } catch (error) {
    recordFailure(call, error);
    call.response.destroy();
  }
}

function requireProtocolVersion(request: FastifyRequest): void {
  const version = request.headers['connect-protocol-version'];
  if (version === undefined || version === PROTOCOL_VERSION) return;
  throw new EnvdError(
    'invalid_argument',
    `unsupported Connect-Protocol-Version '${version}': use version ${PROTOCOL_VERSION}`,
  );
}

/** Sends an error that occurred before the call was served, in the shape of the client's protocol. */
function refuse(call: CallScope, error: unknown): void {
  const { request, response } = call;
  const type = request.headers['content-type'] ?? '';
  recordFailure(call, error);
  if (streamCodecOf(type) === null) sendRpcError(response, error);
  else {
    const end = endOfStream(error);
    response.writeHead(200, { 'content-type': type, 'content-length': end.length }).end(end);
  }
}

/** Responds with 415. The message names the first two accepted types, those of Connect. Source: Connect protocol, "Unary-Response". */
function refuseType(call: CallScope, type: string, accepted: readonly string[]): void {
  const text = `content type '${type}' is not supported by this call: use ${accepted.slice(0, 2).join(' or ')}`;
  const failure = new EnvdError('invalid_argument', text);
  recordFailure(call, failure);
  call.response.setHeader('accept-post', accepted.join(', '));
  sendRpcError(call.response, failure, 415);
}
