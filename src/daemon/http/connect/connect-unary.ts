import type { IncomingMessage } from 'node:http';
import {
  create,
  type DescMessage,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
  toJsonString,
} from '@bufbuild/protobuf';
import type { ConnectRouter, HandlerContext } from '@connectrpc/connect';
import type { UniversalHandlerOptions } from '@connectrpc/connect/protocol';
import type { CallScope } from '../admission/call-scope.ts';
import type { Subject } from '../admission/subject.ts';
import { type Codec, decodeMessage } from './codec.ts';
import { NODE_CALL } from './connect-node.ts';
import { ListAnswer } from './list-answer.ts';
import { REQUEST_LIMIT_BYTES, type RequestHeaders, readBody, timeoutOf } from './request.ts';
import { type Destination, sendAnswer, sendError } from './unary-answer.ts';

const CONTENT_TYPE = /^application\/(json|proto)(?: *; *charset=utf-?8)?$/i;

/** The codec of an uncompressed unary request in the Connect protocol; null for any other. */
export function unaryCodecOf({ headers }: IncomingMessage): Codec | null {
  if (headers['content-encoding'] !== undefined) return null;
  const contentType = headers['content-type'] ?? '';
  if (contentType === 'application/json') return 'json';
  const type = CONTENT_TYPE.exec(contentType)?.[1]?.toLowerCase();
  return type === undefined ? null : type === 'json' ? 'json' : 'binary';
}

/** The context of a unary call. */
export interface UnaryCall<Output extends DescMessage = DescMessage> {
  readonly requestHeader: RequestHeaders;
  /** Aborts when the client disconnects, the deadline passes or the daemon stops. */
  readonly signal: AbortSignal;
  /** Encodes a large response in slices, which replace the returned message. */
  readonly list?: ListAnswer<Output>;
  /** Names the process or path of the call, for the log. */
  about?(subject: Subject): void;
}

/** A unary request, and how it is answered. */
export interface UnaryExchange extends Destination {
  readonly headers: RequestHeaders;
}

/** A unary call that is served without connect-node. */
export interface UnaryRoute {
  readonly path: string;
  /** Resolves with the error in the response, or null. */
  serve(exchange: UnaryExchange): Promise<unknown>;
  /** Adds the call to connect-node. */
  register(router: ConnectRouter, options: Partial<UniversalHandlerOptions>): void;
}

/** A unary RPC, with the types of its messages. */
export interface UnaryMethod<Input extends DescMessage, Output extends DescMessage> {
  readonly method: DescMethodUnary<Input, Output>;
  /** Whether unknown JSON properties are ignored or refused. */
  readonly ignoreUnknownFields: boolean;
  /**
   * Whether the result of `handle` is its own JSON: strings, 32-bit numbers and messages in the order of their field
   * numbers, without members that have their default. protobuf-es takes some microseconds to build a message and to
   * write its JSON.
   */
  readonly isOwnJson?: boolean;
  handle(
    message: MessageShape<Input>,
    call: UnaryCall<Output>,
  ): MessageInitShape<Output> | Promise<MessageInitShape<Output>>;
}

export function unaryRoute<Input extends DescMessage, Output extends DescMessage>(
  served: UnaryMethod<Input, Output>,
): UnaryRoute {
  const { method, ignoreUnknownFields } = served;
  return {
    path: `/${method.parent.typeName}/${method.name}`,
    serve: (exchange) => serveUnary(served, exchange),
    register: (router, options) => {
      const implementation = connectNodeUnary(served);
      router.rpc(method, implementation, { ...options, jsonOptions: { ignoreUnknownFields } });
    },
  };
}

/** The same for connect-node, with large responses already encoded. */
function connectNodeUnary<Input extends DescMessage, Output extends DescMessage>({
  method,
  handle,
}: UnaryMethod<Input, Output>) {
  return async (message: MessageShape<Input>, { values, requestHeader, signal }: HandlerContext) => {
    const served = values.get(NODE_CALL);
    if (!served) throw new Error('connect-node serves a call that was not given to it');
    const codec = /json/i.test(requestHeader.get('content-type') ?? '') ? 'json' : 'binary';
    const call = new Call(requestHeader, served.scope, codec, method.output, signal);
    const output = await handle(message, call);
    // Otherwise the answer is an error.
    if (!signal.aborted) served.answer = call.slices?.end() ?? null;
    return output;
  };
}

/** Serves as connect-node would, at a third of the CPU: without its adapters between Node's streams, fetch and iterables. */
async function serveUnary<Input extends DescMessage, Output extends DescMessage>(
  served: UnaryMethod<Input, Output>,
  exchange: UnaryExchange,
): Promise<unknown> {
  const { call, headers, codec } = exchange;
  try {
    call.expireAfter(timeoutOf(headers), 'the operation timed out');
    await answer(served, exchange, await readBody(call, REQUEST_LIMIT_BYTES[codec]));
    return null;
  } catch (error) {
    if (call.response.headersSent) call.response.destroy();
    else sendError(call.response, error);
    return error;
  } finally {
    call.release();
  }
}

/** Returns no promise unless the call does. */
function answer<Input extends DescMessage, Output extends DescMessage>(
  served: UnaryMethod<Input, Output>,
  exchange: UnaryExchange,
  body: Buffer,
): Promise<void> | void {
  const { method, ignoreUnknownFields } = served;
  const { call: scope, headers, codec } = exchange;
  const message = decodeMessage(method.input, body, codec, ignoreUnknownFields);
  const call = new Call(headers, scope, codec, method.output, null);
  const send = (output: MessageInitShape<Output>) =>
    sendAnswer(exchange, call.slices?.end() ?? encode(served, output, codec));
  const handled = served.handle(message, call);
  return handled instanceof Promise ? scope.race(handled).then(send) : send(handled);
}

function encode<Input extends DescMessage, Output extends DescMessage>(
  { method, isOwnJson = false }: UnaryMethod<Input, Output>,
  output: MessageInitShape<Output>,
  codec: Codec,
): string | Uint8Array[] {
  if (isOwnJson && codec === 'json') return JSON.stringify(output);
  const message = create(method.output, output);
  return codec === 'json' ? toJsonString(method.output, message) : [toBinary(method.output, message)];
}

/** The context of a call; creates on demand what few calls need. */
class Call<Output extends DescMessage> implements UnaryCall<Output> {
  readonly requestHeader: RequestHeaders;
  slices: ListAnswer<Output> | null = null;
  readonly #scope: CallScope;
  readonly #codec: Codec;
  readonly #output: Output;
  readonly #signal: AbortSignal | null;

  /** `signal`: connect-node's, or null. */
  constructor(
    requestHeader: RequestHeaders,
    scope: CallScope,
    codec: Codec,
    output: Output,
    signal: AbortSignal | null,
  ) {
    this.requestHeader = requestHeader;
    this.#scope = scope;
    this.#codec = codec;
    this.#output = output;
    this.#signal = signal;
  }

  get signal(): AbortSignal {
    return this.#signal ?? this.#scope.signal;
  }

  about(subject: Subject): void {
    this.#scope.subject = subject;
  }

  get list(): ListAnswer<Output> {
    this.slices ??= new ListAnswer(this.#output, this.#codec);
    return this.slices;
  }
}
