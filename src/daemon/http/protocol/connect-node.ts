// Lets connect-node serve gRPC-Web and streams of requests, with the same handlers of RPCs.
import { gzipSync } from 'node:zlib';
import {
  Code,
  ConnectError,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from '@connectrpc/connect';
import {
  type Compression,
  compressionNegotiate,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from '@connectrpc/connect/protocol';
import {
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from '@connectrpc/connect-node';
import { onAbort } from '../../../base/abort.ts';
import { type CallScope, COUNTED_BYTES } from '../admission/call-scope.ts';
import { recordFailure, toConnectError } from '../admission/errors.ts';
import { DECOMPRESSED_LIMIT_BYTES } from '../bodies/body-limits.ts';
import { COMPRESSED_FLAG, ENVELOPE_BYTES, writeEnvelope } from './codec.ts';
import { UnsentBytes } from './unsent-bytes.ts';

/** Brotli is not among them, because it keeps a thread of the pool for seconds. */
export const COMPRESSIONS = [blamingClient(compressionGzip)];
/** A message of up to this many bytes is compressed at once, because a job for a thread of the pool takes longer. */
const AT_ONCE_BYTES = 32 * 1024;
/** Smaller responses are not compressed. connect-node has the same limit. */
export const COMPRESSED_BYTES = 1024;
const TIMEOUT = 'connect-timeout-ms';

type Body = AsyncIterable<Uint8Array>;

/** Blames the client for compressed data that are cut off, which connect-node reports as an internal error. */
function blamingClient(compression: Compression): Compression {
  return {
    ...compression,
    compress: async (bytes) =>
      bytes.length <= AT_ONCE_BYTES ? gzipSync(bytes, { level: 1 }) : compression.compress(bytes),
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

/** A call that connect-node serves. */
interface NodeCall {
  readonly scope: CallScope;
  /** Counts the part of the response that the client has not read. */
  readonly sending: UnsentBytes;
  /** The encoded response message, in slices; null: connect-node encodes the response. */
  answer: readonly Buffer[] | null;
}

const NODE_CALL = createContextKey<NodeCall | null>(null);

/** Returns the call of a handler. It is aborted with connect-node's signal, which knows the deadline in each protocol. */
export function nodeCallOf({ values, signal }: HandlerContext): NodeCall {
  const call = values.get(NODE_CALL);
  if (!call) throw new Error('connect-node serves a call that was not passed to it');
  onAbort(signal, () => call.scope.abort(signal.reason));
  return call;
}

/** Runs `work` for a call until the call is aborted. Logs errors, and throws them as errors of Connect. */
export async function handleNodeCall<T>(
  context: HandlerContext,
  work: (call: NodeCall) => Promise<T>,
): Promise<T> {
  const call = nodeCallOf(context);
  try {
    return await call.scope.race(work(call));
  } catch (error) {
    throw failedCall(call, error);
  }
}

/** Records the error of a call for the log, and returns it as an error of Connect. */
export function failedCall({ scope, sending }: NodeCall, error: unknown): ConnectError {
  recordFailure(scope, sending.dropped ?? error);
  return toConnectError(error);
}

export async function serveByConnectNode(scope: CallScope, handler: UniversalHandler): Promise<void> {
  const { request, response, shared } = scope;
  scope.askForBody();
  const call: NodeCall = { scope, sending: new UnsentBytes(response, shared.unread), answer: null };
  const values = createContextValues().set(NODE_CALL, call);
  const sent = universalRequestFromNodeRequest(request, response, undefined, values);
  // A timeout of 0 means that there is none, but connect-node would take it for a deadline that has passed.
  if (/^0+$/.test(sent.header.get(TIMEOUT) ?? '')) sent.header.delete(TIMEOUT);
  const receiving = new UnsentBytes(response, shared.requests);
  const answer = await handler({ ...sent, body: counted(sent.body, receiving) });
  await universalResponseToNodeResponse(
    call.answer ? await inSlices(answer, call, call.answer) : answer,
    response,
  );
}

/** Passes the body on, and counts the bytes that connect-node may keep of it. */
async function* counted(
  body: UniversalServerRequest['body'],
  receiving: UnsentBytes,
): AsyncGenerator<Uint8Array> {
  // The body is a stream, because Fastify does not parse it.
  if (typeof body !== 'object' || body === null || !(Symbol.asyncIterator in body)) return;
  let length = 0;
  for await (const piece of body as Body) {
    length = Math.min(length + piece.length, DECOMPRESSED_LIMIT_BYTES);
    if (length > COUNTED_BYTES) receiving.wait(length);
    yield piece;
  }
}

/** Returns a response of gRPC-Web with the slices as its message, compressed as connect-node would do it. */
async function inSlices(
  answer: UniversalServerResponse,
  { scope, sending }: NodeCall,
  slices: readonly Buffer[],
): Promise<UniversalServerResponse> {
  const { 'grpc-encoding': requested, 'grpc-accept-encoding': accepted } = scope.request.headers;
  const { response: coding } = compressionNegotiate(COMPRESSIONS, asText(requested), asText(accepted), '');
  const length = slices.reduce((sum, slice) => sum + slice.length, 0);
  const isCoded = coding !== null && length >= COMPRESSED_BYTES;
  const parts = isCoded ? [await coding.compress(Buffer.concat(slices))] : slices;
  const envelope = Buffer.alloc(ENVELOPE_BYTES);
  writeEnvelope(envelope, isCoded ? COMPRESSED_FLAG : 0, isCoded ? (parts[0]?.length ?? 0) : length);
  sending.wait(length);
  return { ...answer, body: withFirst([envelope, ...parts], answer.body) };
}

const asText = (header: string | readonly string[] | undefined) =>
  header === undefined ? null : String(header);

/** Yields the frames of a response with the parts of `first` in place of the first one. */
async function* withFirst(
  first: readonly Uint8Array[],
  frames: Body | undefined,
): AsyncGenerator<Uint8Array> {
  yield* first;
  let isReplaced = false;
  for await (const frame of frames ?? []) {
    if (isReplaced) yield frame;
    isReplaced = true;
  }
}
