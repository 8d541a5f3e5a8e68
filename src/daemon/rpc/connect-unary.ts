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

/** The codec of a call that this path serves, or null: another protocol, or a request that is compressed. */
export function unaryCodecOf(request: IncomingMessage): Codec | null {
  const type = CONTENT_TYPE.exec(request.headers['content-type'] ?? '')?.[1]?.toLowerCase();
  if (!type || request.headers['content-encoding'] !== undefined) return null;
  return type === 'json' ? 'json' : 'binary';
}

/** What a call brings with it, beside its message. */
export interface UnaryCall {
  readonly requestHeader: Headers;
  /** Aborts when the client has gone, the call's deadline has passed, or the daemon stops. */
  readonly signal: AbortSignal;
  /** Takes a large answer in slices, instead of what is returned. */
  readonly list?: ListAnswer;
}

/** A request as the router hands it over. */
export interface UnaryExchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly headers: Headers;
  readonly codec: Codec;
  /** What the answer may be compressed with. */
  readonly encoding: Encoding | null;
  readonly shutdown: AbortSignal;
}

/** A call that has a path of its own for Connect's codecs; resolves with the error that it was answered, or null. */
export interface UnaryRoute {
  readonly path: string;
  serve(exchange: UnaryExchange): Promise<unknown>;
}

type Implementation = (message: never, call: UnaryCall) => unknown;

/** Those unary calls of a service that are implemented. */
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

/** Answers as connect-node would, without its adapters between Node's streams, fetch and iterables: a third of the CPU. */
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
