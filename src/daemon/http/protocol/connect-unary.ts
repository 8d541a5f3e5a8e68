import type { IncomingHttpHeaders } from 'node:http';
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJsonString,
} from '@bufbuild/protobuf';
import type { HandlerContext } from '@connectrpc/connect';
import { type Compression, compressionNegotiate } from '@connectrpc/connect/protocol';
import { endWith } from '../../../base/buffers.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { sendRpcError } from '../admission/errors.ts';
import { DECOMPRESSED_LIMIT_BYTES, messageTooLong, REQUEST_LIMIT_BYTES } from '../bodies/body-limits.ts';
import { readBody } from '../bodies/read-body.ts';
import { type Codec, decodeMessage } from './codec.ts';
import { COMPRESSED_BYTES, COMPRESSIONS, handleNodeCall } from './connect-node.ts';
import { timeoutOf } from './request.ts';
import type { Rpc } from './rpc.ts';
import { UnsentBytes } from './unsent-bytes.ts';

/** Smaller answers are not counted, because the limit of connections limits their sum. */
const COUNTED_BYTES = 64 * 1024;
/** An answer in slices has at most this many bytes. */
const MAX_BYTES = 64 * 1024 * 1024;
/** The slices of a smaller answer are joined, which makes them one write. */
const JOINED_BYTES = 64 * 1024;

const CONTENT_TYPE = /^application\/(json|proto)(?: *; *charset=utf-?8)?$/i;

/** Returns the codec of a unary request in the Connect protocol; null for any other content type. */
export function unaryCodecOf(contentType: string): Codec | null {
  if (contentType === 'application/json') return 'json';
  const type = CONTENT_TYPE.exec(contentType)?.[1]?.toLowerCase();
  return type === undefined ? null : type === 'json' ? 'json' : 'binary';
}

/** How the messages of a service are read and written. */
export interface MessageOptions {
  /** Whether unknown JSON properties are ignored or refused. */
  readonly ignoreUnknownFields: boolean;
  /**
   * Whether JSON.stringify() encodes what a handler returns, which is faster than protobuf-es. Then members must be strings,
   * 32-bit numbers or messages, in the order of their field numbers, and absent if they have their default value. A message
   * that protobuf-es has made is encoded by protobuf-es.
   */
  readonly isOwnJson: boolean;
  /** A response in several messages ends with the one that exceeds this many bytes; without a number it has all of them. */
  readonly enoughBytes?: number;
}

/**
 * A handler returns the response. A response with one list that may be long is returned as several messages with a part of the
 * list each. They are encoded one by one, so that the event loop serves others in between.
 */
type HandlerResult<Output extends DescMessage> =
  | MessageInitShape<Output>
  | Promise<MessageInitShape<Output>>
  | AsyncIterable<MessageInitShape<Output>>;

export interface UnaryRpc extends Rpc {
  readonly method: DescMethodUnary;
  handle(message: MessageShape<DescMessage>, call: CallScope): HandlerResult<DescMessage>;
}

export function unaryRpc<Input extends DescMessage, Output extends DescMessage>(
  method: DescMethodUnary<Input, Output>,
  { ignoreUnknownFields, isOwnJson, enoughBytes }: MessageOptions,
  handle: (message: MessageShape<Input>, call: CallScope) => HandlerResult<Output>,
): UnaryRpc {
  const encode = (output: MessageInitShape<Output>, codec: Codec) =>
    isOwnJson && codec === 'json' && !('$typeName' in output)
      ? JSON.stringify(output)
      : encoded(method.output, output, codec);
  // This serves as connect-node would, but takes less CPU, as it needs no adapters between Node's streams, fetch and iterables.
  const answer = async (call: CallScope, codec: Codec) => {
    const { headers } = call.request;
    call.expireAfter(timeoutOf(headers), 'the operation timed out');
    const { request: coding, response: encoding } = codingsOf(headers);
    const body = await readRequest(call, codec, coding);
    const response = handle(decodeMessage(method.input, body, codec, ignoreUnknownFields), call);
    const bytes = isSliced(response)
      ? await call.race(encodeSlices(method.output, response, codec, call, enoughBytes))
      : encode(response instanceof Promise ? await call.race(response) : response, codec);
    await respond(call, codec, encoding, bytes);
  };
  return {
    method,
    handle,
    async serve(call, codec) {
      try {
        await answer(call, codec);
        return null;
      } catch (error) {
        if (call.response.headersSent) call.response.destroy();
        else sendRpcError(call.response, error);
        return error;
      } finally {
        call.release();
      }
    },
    register(router) {
      const serve = (message: MessageShape<Input>, context: HandlerContext) =>
        handleNodeCall(context, async (call) => {
          const response = handle(message, call.scope);
          if (!isSliced(response)) return response;
          const codec = /json/i.test(context.requestHeader.get('content-type') ?? '') ? 'json' : 'binary';
          call.answer = await encodeSlices(method.output, response, codec, call.scope, enoughBytes);
          return create(method.output);
        });
      router.rpc(method, serve, { jsonOptions: { ignoreUnknownFields } });
    },
  };
}

function encoded<Output extends DescMessage>(
  schema: Output,
  init: MessageInitShape<Output>,
  codec: Codec,
): string | Uint8Array {
  const message = create(schema, init);
  return codec === 'json' ? toJsonString(schema, message) : toBinary(schema, message);
}

/** Encodes slices of a message. The bytes are those of the whole message. Throws `resource_exhausted` for too many. */
async function encodeSlices<Output extends DescMessage>(
  schema: Output,
  slices: AsyncIterable<MessageInitShape<Output>>,
  codec: Codec,
  call: CallScope,
  enoughBytes = MAX_BYTES,
): Promise<Buffer[]> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const slice of slices) {
    call.throwIfAborted();
    const part = encoded(schema, slice, codec);
    // Concatenated protobuf messages are one message with the elements of all of them.
    const chunk = typeof part === 'string' ? listPart(part, chunks.length === 0) : Buffer.from(part);
    if (chunk.length === 0) continue;
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > MAX_BYTES)
      throw new EnvdError('resource_exhausted', `answer has more than ${MAX_BYTES} bytes: ask for less`);
    call.holdMore(chunk.length);
    if (bytes > enoughBytes) break;
  }
  if (codec === 'json') chunks.push(Buffer.from(chunks.length === 0 ? '{}' : ']}'));
  return chunks;
}

function isSliced<Output extends DescMessage>(
  response: HandlerResult<Output>,
): response is AsyncIterable<MessageInitShape<Output>> {
  return Symbol.asyncIterator in response;
}

/** Returns a part of a list without its end. `text` is `{"name":[…]}`, or `{}` for an empty list, of which nothing is left. */
function listPart(text: string, isFirst: boolean): Buffer {
  const start = text.indexOf('[');
  if (start < 0) return Buffer.alloc(0);
  return Buffer.from((isFirst ? '' : ',') + text.slice(isFirst ? 0 : start + 1, -']}'.length));
}

type Coding = Compression | null;

/** Returns the compression of the request and of the response. Throws `unimplemented` if that of the request is unknown. */
function codingsOf(headers: IncomingHttpHeaders): { readonly request: Coding; readonly response: Coding } {
  const { 'content-encoding': requested = null, 'accept-encoding': accepted = null } = headers;
  if (requested === null && accepted === null) return { request: null, response: null };
  const codings = compressionNegotiate(COMPRESSIONS, requested, accepted, 'accept-encoding');
  if (codings.error) throw codings.error;
  return codings;
}

async function readRequest(call: CallScope, codec: Codec, coding: Coding): Promise<Buffer> {
  if (coding === null) return readBody(call, REQUEST_LIMIT_BYTES[codec], messageTooLong);
  const body = await readBody(call, DECOMPRESSED_LIMIT_BYTES, messageTooLong);
  const message = await call.race(coding.decompress(body, DECOMPRESSED_LIMIT_BYTES));
  call.hold(message.length);
  return Buffer.from(message.buffer, message.byteOffset, message.length);
}

/** Sends an encoded message. A large one counts as unread until the response is closed. */
async function respond(
  call: CallScope,
  codec: Codec,
  encoding: Coding,
  answer: string | Uint8Array | readonly Buffer[],
): Promise<void> {
  const { response } = call;
  const length = sizeOf(answer);
  const head = ['content-type', codec === 'json' ? 'application/json' : 'application/proto'];
  if (length > COUNTED_BYTES) new UnsentBytes(response, call.shared.unread).wait(length);
  if (encoding !== null && length >= COMPRESSED_BYTES) {
    const coded = await call.race(encoding.compress(bytesOf(answer)));
    head.push('content-encoding', encoding.name, 'content-length', String(coded.length));
    response.writeHead(200, head).end(coded);
    return;
  }
  response.writeHead(200, [...head, 'content-length', String(length)]);
  if (typeof answer === 'string') response.end(answer);
  else if (!Array.isArray(answer) || length <= JOINED_BYTES) endWith(response, bytesOf(answer));
  else {
    for (const chunk of answer) response.write(chunk);
    response.end();
  }
}

function sizeOf(answer: string | Uint8Array | readonly Buffer[]): number {
  if (typeof answer === 'string') return Buffer.byteLength(answer);
  return answer instanceof Uint8Array ? answer.length : answer.reduce((sum, chunk) => sum + chunk.length, 0);
}

function bytesOf(answer: string | Uint8Array | readonly Buffer[]): Buffer {
  if (typeof answer === 'string') return Buffer.from(answer);
  if (!(answer instanceof Uint8Array)) return Buffer.concat(answer);
  return Buffer.from(answer.buffer, answer.byteOffset, answer.length);
}
