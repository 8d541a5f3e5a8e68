import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  create,
  type DescMethod,
  type DescMethodUnary,
  type DescService,
  type MessageInitShape,
} from '@bufbuild/protobuf';
import { CallScope } from './call-scope.ts';
import { type Codec, decodeMessage, encodeMessage } from './codec.ts';
import { ListAnswer } from './entry.ts';
import { readBody, timeoutOf } from './request.ts';
import { type Encoding, sendAnswer, sendError } from './unary-answer.ts';

const CONTENT_TYPE = /^application\/(json|proto)(?: *; *charset=utf-?8)?$/i;

/** The codec of an uncompressed unary request in the Connect protocol; null for any other. */
export function unaryCodecOf(request: IncomingMessage): Codec | null {
  const type = CONTENT_TYPE.exec(request.headers['content-type'] ?? '')?.[1]?.toLowerCase();
  if (!type || request.headers['content-encoding'] !== undefined) return null;
  return type === 'json' ? 'json' : 'binary';
}

/** The context of a unary call. */
export interface UnaryCall {
  readonly requestHeader: Headers;
  /** Aborts when the client disconnects, the deadline passes or the daemon stops. */
  readonly signal: AbortSignal;
  /** Encodes a large response in slices, which replace the returned message. */
  readonly list?: ListAnswer;
}

/** A unary request and its response. */
export interface UnaryExchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly headers: Headers;
  readonly codec: Codec;
  /** The compression of the response, or null. */
  readonly encoding: Encoding | null;
  readonly shutdown: AbortSignal;
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
    return {
      path: `/${service.typeName}/${method.name}`,
      serve: (exchange) => serveUnary(method, implementation, ignoreUnknownFields, exchange),
    };
  });
}

function isUnary(method: DescMethod): method is DescMethodUnary {
  return method.methodKind === 'unary';
}

/** Serves as connect-node would, without its adapters between Node's streams, fetch and iterables: a third of the CPU. */
async function serveUnary(
  method: DescMethodUnary,
  implementation: Implementation,
  ignoreUnknownFields: boolean,
  exchange: UnaryExchange,
): Promise<unknown> {
  const { request, response, headers, codec, encoding, shutdown } = exchange;
  try {
    using scope = new CallScope(response, shutdown, timeoutOf(headers), 'the operation timed out');
    const message = decodeMessage(
      method.input,
      await scope.race(readBody(request)),
      codec,
      ignoreUnknownFields,
    );
    const list = new ListAnswer(codec);
    const call = { requestHeader: headers, signal: scope.signal, list };
    const output = await scope.race(Promise.resolve(implementation(message as never, call)));
    const init = output as MessageInitShape<typeof method.output>;
    const chunks = list.end() ?? [encodeMessage(method.output, create(method.output, init), codec)];
    await sendAnswer(response, codec, chunks, encoding);
    return null;
  } catch (error) {
    if (response.headersSent) response.destroy();
    else sendError(response, error);
    return error;
  }
}
