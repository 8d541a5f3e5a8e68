import type { IncomingMessage } from 'node:http';
import {
  create,
  type DescMethod,
  type DescMethodUnary,
  type DescService,
  type MessageInitShape,
  toBinary,
  toJsonString,
} from '@bufbuild/protobuf';
import type { AbortRelay } from '../../base/abort.ts';
import { CallScope } from './call-scope.ts';
import { type Codec, decodeMessage } from './codec.ts';
import { ListAnswer } from './entry.ts';
import { type RequestHeaders, readBody, timeoutOf } from './request.ts';
import { type Destination, sendAnswer, sendError, sendText } from './unary-answer.ts';

const CONTENT_TYPE = /^application\/(json|proto)(?: *; *charset=utf-?8)?$/i;

/** The codec of an uncompressed unary request in the Connect protocol; null for any other. */
export function unaryCodecOf(request: IncomingMessage): Codec | null {
  const type = CONTENT_TYPE.exec(request.headers['content-type'] ?? '')?.[1]?.toLowerCase();
  if (!type || request.headers['content-encoding'] !== undefined) return null;
  return type === 'json' ? 'json' : 'binary';
}

/** The context of a unary call. */
export interface UnaryCall {
  readonly requestHeader: RequestHeaders;
  /** Aborts when the client disconnects, the deadline passes or the daemon stops. */
  readonly signal: AbortSignal;
  /** Encodes a large response in slices, which replace the returned message. */
  readonly list?: ListAnswer;
}

/** A unary request and its response. */
export interface UnaryExchange extends Destination {
  readonly request: IncomingMessage;
  readonly headers: RequestHeaders;
  readonly shutdown: AbortRelay;
}

/** A unary call that is served without connect-node. */
export interface UnaryRoute {
  readonly path: string;
  /** Resolves with the error in the response, or null. */
  serve(exchange: UnaryExchange): Promise<unknown>;
}

type Implementation = (message: never, call: UnaryCall) => unknown;

/** The routes of all unary methods in `implementations`. */
export function unaryRoutes(
  service: DescService,
  implementations: object,
  ignoreUnknownFields: boolean,
): UnaryRoute[] {
  const byName = new Map<string, Implementation>(Object.entries(implementations));
  return service.methods.flatMap((method) => {
    const implementation = byName.get(method.localName);
    if (!isUnary(method) || !implementation) return [];
    const call = { method, implementation, ignoreUnknownFields };
    return { path: `/${service.typeName}/${method.name}`, serve: (exchange) => serveUnary(call, exchange) };
  });
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === 'unary';
}

interface Served {
  readonly method: DescMethodUnary;
  readonly implementation: Implementation;
  readonly ignoreUnknownFields: boolean;
}

/** Serves as connect-node would, without its adapters between Node's streams, fetch and iterables: a third of the CPU. */
async function serveUnary(served: Served, exchange: UnaryExchange): Promise<unknown> {
  const { response, headers, head, shutdown } = exchange;
  try {
    using scope = new CallScope(response, shutdown, timeoutOf(headers), 'the operation timed out');
    await answer(served, exchange, scope);
    return null;
  } catch (error) {
    if (response.headersSent) response.destroy();
    else sendError(response, head, error);
    return error;
  }
}

async function answer(
  { method, implementation, ignoreUnknownFields }: Served,
  exchange: UnaryExchange,
  scope: CallScope,
): Promise<void> {
  const { request, headers, codec } = exchange;
  const body = await scope.race(readBody(request));
  const message = decodeMessage(method.input, body, codec, ignoreUnknownFields);
  const call = new Call(headers, scope, codec);
  const output = await scope.race(Promise.resolve(implementation(message as never, call)));
  const chunks = call.slices?.end();
  if (chunks) return sendAnswer(exchange, chunks);
  const init = create(method.output, output as MessageInitShape<typeof method.output>);
  if (codec === 'json') return sendText(exchange, toJsonString(method.output, init));
  return sendAnswer(exchange, [toBinary(method.output, init)]);
}

/** Makes what few calls need when it is asked for. */
class Call implements UnaryCall {
  readonly requestHeader: RequestHeaders;
  slices: ListAnswer | null = null;
  readonly #scope: CallScope;
  readonly #codec: Codec;

  constructor(requestHeader: RequestHeaders, scope: CallScope, codec: Codec) {
    this.requestHeader = requestHeader;
    this.#scope = scope;
    this.#codec = codec;
  }

  get signal(): AbortSignal {
    return this.#scope.signal;
  }

  get list(): ListAnswer {
    this.slices ??= new ListAnswer(this.#codec);
    return this.slices;
  }
}
