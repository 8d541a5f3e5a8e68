import {
  Code,
  ConnectError,
  createContextKey,
  createContextValues,
  type Interceptor,
} from '@connectrpc/connect';
import {
  type Compression,
  compressionNegotiate,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import {
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { untilAborted } from '../../../base/abort.ts';
import { type CallScope, COUNTED_BYTES } from '../admission/call-scope.ts';
import { COMPRESSED_FLAG, ENVELOPE_BYTES, writeEnvelope } from './codec.ts';
import { recordFailure, toConnectError } from './errors.ts';
import { DECOMPRESSED_LIMIT_BYTES } from './request.ts';
import { Sending } from './sending.ts';
import { COMPRESSED_BYTES } from './unary-answer.ts';

export const COMPRESSIONS = [blamingClient(compressionGzip), blamingClient(compressionBrotli)];
const TIMEOUT = 'connect-timeout-ms';
const GRPC_WEB = /^application\/grpc-web/i;

type Body = AsyncIterable<Uint8Array>;

/** connect-node takes compressed data that are cut off for an internal error. */
function blamingClient(compression: Compression): Compression {
  return {
    ...compression,
    decompress: async (bytes, limit) => {
      try {
        return await compression.decompress(bytes, limit);
      } catch (error) {
        const { code, rawMessage } = ConnectError.from(error);
        throw code === Code.Internal ? new ConnectError(rawMessage, Code.InvalidArgument) : error;
      }
    },
  };
}

/** A call that connect-node serves: compressed, or in another protocol than Connect. */
export class NodeCall {
  readonly scope: CallScope;
  /** The part of the response that the client has not read. */
  readonly sending: Sending;
  /** The encoded response message, in slices; null: connect-node encodes it. */
  answer: readonly Buffer[] | null = null;

  constructor(scope: CallScope) {
    this.scope = scope;
    this.sending = new Sending(scope.response, scope.shared.unread);
  }
}

/** The call, in the context of its handler. */
export const NODE_CALL = createContextKey<NodeCall | null>(null);

/** Converts errors to errors of Connect, and ends unary calls at their deadline. */
export const translateErrors: Interceptor = (next) => async (request) => {
  const call = request.contextValues.get(NODE_CALL);
  try {
    const response = await untilAborted(next(request), request.signal);
    return response.stream ? { ...response, message: translated(response.message, call) } : response;
  } catch (error) {
    throw translate(error, call);
  }
};

function translate(error: unknown, call: NodeCall | null): ConnectError {
  if (call) recordFailure(call.scope, call.sending.dropped ?? error);
  return toConnectError(error);
}

async function* translated<T>(messages: AsyncIterable<T>, call: NodeCall | null): AsyncGenerator<T> {
  try {
    yield* messages;
  } catch (error) {
    throw translate(error, call);
  }
}

/** Serves the other protocols and encodings by connect-node. */
export async function serveByConnectNode(scope: CallScope, handler: UniversalHandler): Promise<void> {
  const { request, response, shared } = scope;
  scope.askForBody();
  const call = new NodeCall(scope);
  const values = createContextValues().set(NODE_CALL, call);
  try {
    const sent = universalRequestFromNodeRequest(request, response, undefined, values);
    // No limit; connect-node takes it for a deadline that has passed.
    if (/^0+$/.test(sent.header.get(TIMEOUT) ?? '')) sent.header.delete(TIMEOUT);
    const receiving = new Sending(response, shared.requests);
    const answer = await handler({ ...sent, body: counted(sent.body, receiving) });
    await universalResponseToNodeResponse(
      call.answer ? await sliced(answer, call.answer, call) : answer,
      response,
    );
  } catch (error) {
    recordFailure(scope, error);
    response.destroy();
  }
}

/** Always true of a request: it would be a value if Fastify had parsed it. */
function isStream(body: UniversalServerRequest['body'] | undefined): body is Body {
  return typeof body === 'object' && body !== null && Symbol.asyncIterator in body;
}

/** The body, with the bytes counted that connect-node may keep. */
async function* counted(
  body: UniversalServerRequest['body'],
  receiving: Sending,
): AsyncGenerator<Uint8Array> {
  let length = 0;
  if (!isStream(body)) return;
  for await (const piece of body) {
    length = Math.min(length + piece.length, DECOMPRESSED_LIMIT_BYTES);
    if (length > COUNTED_BYTES) receiving.wait(length);
    yield piece;
  }
}

/** The response with the slices as its message, compressed as connect-node would. */
async function sliced(
  answer: UniversalServerResponse,
  slices: readonly Uint8Array[],
  { scope: { request }, sending }: NodeCall,
): Promise<UniversalServerResponse> {
  const { headers } = request;
  const isGrpcWeb = GRPC_WEB.test(headers['content-type'] ?? '');
  const [encoding, accepted] = isGrpcWeb
    ? [headers['grpc-encoding'], headers['grpc-accept-encoding']]
    : [headers['content-encoding'], headers['accept-encoding']];
  const compression = compressionNegotiate(COMPRESSIONS, asText(encoding), asText(accepted), '').response;
  const isCompressed = compression !== null && sizeOf(slices) >= COMPRESSED_BYTES;
  const message = isCompressed ? [await compression.compress(Buffer.concat(slices))] : slices;
  const length = sizeOf(message);
  sending.wait(length);
  if (isGrpcWeb) return { ...answer, body: inFrame(answer.body, message, length, isCompressed) };
  const header = new Headers(answer.header);
  header.set('content-length', String(length));
  if (isCompressed) header.set('content-encoding', compression.name);
  return { ...answer, header, body: each(message) };
}

const asText = (header: string | readonly string[] | undefined) =>
  header === undefined ? null : String(header);
const sizeOf = (pieces: readonly Uint8Array[]) => pieces.reduce((sum, { length }) => sum + length, 0);

/** The frames of a response, the first with another message. */
async function* inFrame(
  frames: Body | undefined,
  message: readonly Uint8Array[],
  length: number,
  isCompressed: boolean,
): AsyncGenerator<Uint8Array> {
  const envelope = Buffer.alloc(ENVELOPE_BYTES);
  writeEnvelope(envelope, isCompressed ? COMPRESSED_FLAG : 0, length);
  yield envelope;
  yield* message;
  let isReplaced = false;
  for await (const frame of frames ?? []) {
    if (isReplaced) yield frame;
    isReplaced = true;
  }
}

async function* each(pieces: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* pieces;
}
