// The client of RPCs by the Connect protocol (https://connectrpc.com/docs/protocol). The library's own transports load the fetch API and
// HTTP/2 of Node, which takes longer than the start of Node itself.
import type { IncomingMessage } from 'node:http';
import {
  create,
  type DescMessage,
  type DescMethod,
  type DescMethodStreaming,
  type DescMethodUnary,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from '@bufbuild/protobuf';
import {
  type CallOptions,
  Code,
  ConnectError,
  type StreamResponse,
  type Transport,
  type UnaryResponse,
} from '@connectrpc/connect';
import { type HttpClient, readBytes } from './http.ts';
import { requireFewParts } from './message-parts.ts';
import { type RpcFrame, RpcFrameReader, rpcFrameOf } from './rpc-frames.ts';

/** The body of an error may have this many bytes. */
const MAX_ERROR = 64 * 1024;

/** The codes of statuses. Source: https://connectrpc.com/docs/protocol/#http-to-error-code */
const CODES: Readonly<Record<number, Code>> = {
  400: Code.Internal,
  401: Code.Unauthenticated,
  403: Code.PermissionDenied,
  404: Code.Unimplemented,
  429: Code.Unavailable,
  502: Code.Unavailable,
  503: Code.Unavailable,
  504: Code.Unavailable,
};

type CallHeaders = CallOptions['headers'];
type Sent = Readonly<Record<string, string>>;

/** Makes the calls of clients over the connections of an HTTP client. Messages are sent in binary. */
export class RpcTransport implements Transport {
  readonly #http: HttpClient;
  readonly #headers: Sent;
  readonly #maxBytes: number;

  /** `headers` are those of every call, besides those of `http`. An answer has messages of at most `maxBytes`. */
  constructor(http: HttpClient, headers: Sent, maxBytes: number) {
    this.#http = http;
    this.#headers = headers;
    this.#maxBytes = maxBytes;
  }

  /** Throws `ConnectError` for an answer that is an error, and otherwise `Failure`. */
  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    signal: AbortSignal | undefined,
    timeoutMs: number | undefined,
    headers: CallHeaders,
    input: MessageInitShape<I>,
  ): Promise<UnaryResponse<I, O>> {
    const late = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs);
    try {
      const body = toBinary(method.input, create(method.input, input));
      const type = 'application/proto';
      const response = await this.#send(method, body, type, headers, signalOf(signal, late));
      const message = decode(method.output, await readBytes(response, this.#maxBytes));
      return Object.assign(describe(method, response), { stream: false as const, message });
    } catch (error) {
      if (late?.aborted) throw new ConnectError('the operation timed out', Code.DeadlineExceeded);
      throw error;
    }
  }

  /** The answer begins when the request has been sent. Throws what `unary` does; so do the messages. */
  async stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodStreaming<I, O>,
    signal: AbortSignal | undefined,
    _timeoutMs: number | undefined,
    headers: CallHeaders,
    input: AsyncIterable<MessageInitShape<I>>,
  ): Promise<StreamResponse<I, O>> {
    const messages: Buffer[] = [];
    for await (const each of input)
      messages.push(rpcFrameOf(toBinary(method.input, create(method.input, each))));
    const type = 'application/connect+proto';
    const response = await this.#send(method, Buffer.concat(messages), type, headers, signal);
    const message = messagesOf(method.output, response, this.#maxBytes);
    return Object.assign(describe(method, response), { stream: true as const, message });
  }

  /** Resolves with the response to a call, which is no error. */
  async #send(
    method: DescMethod,
    body: Uint8Array,
    type: string,
    headers: CallHeaders,
    signal: AbortSignal | undefined,
  ): Promise<IncomingMessage> {
    const response = await this.#http.exchange({
      method: 'POST',
      path: `/${method.parent.typeName}/${method.name}`,
      headers: {
        'content-type': type,
        'connect-protocol-version': '1',
        ...this.#headers,
        ...entriesOf(headers),
      },
      body: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
      signal,
      // The callers limit the time of a call, and how long a stream may be silent.
      silenceMs: 0,
    });
    if (response.statusCode !== 200) throw await errorOfAnswer(response);
    if (response.headers['content-type'] === type) return response;
    response.destroy();
    throw new ConnectError(`unsupported content type ${response.headers['content-type']}`, Code.Unknown);
  }
}

function entriesOf(headers: CallHeaders = {}): Sent {
  return Object.fromEntries(Symbol.iterator in headers ? headers : Object.entries(headers));
}

function signalOf(...signals: readonly (AbortSignal | undefined)[]): AbortSignal | undefined {
  const [first, ...others] = signals.filter((signal) => signal !== undefined);
  return first && others.length > 0 ? AbortSignal.any([first, ...others]) : first;
}

/** Returns what clients may ask about an answer. Making its headers at once would load the fetch API of Node. */
function describe<Method extends DescMethod>(method: Method, response: IncomingMessage) {
  return {
    service: method.parent,
    method,
    get header() {
      return new Headers(Object.entries(response.headersDistinct).map(([name, all]) => [name, String(all)]));
    },
    get trailer() {
      return new Headers();
    },
  };
}

function decode<O extends DescMessage>(schema: O, bytes: Buffer): MessageShape<O> {
  requireFewParts(schema, bytes);
  return fromBinary(schema, bytes);
}

async function* messagesOf<O extends DescMessage>(
  schema: O,
  response: IncomingMessage,
  maxBytes: number,
): AsyncGenerator<MessageShape<O>> {
  const reader = new RpcFrameReader(maxBytes);
  let hasEnded = false;
  for await (const piece of response) {
    for (const message of reader.read(piece)) {
      if (message.isEnd) throwErrorIn(message);
      else yield decode(schema, message.bytes);
      hasEnded ||= message.isEnd;
    }
  }
  if (!hasEnded) throw new ConnectError('missing EndStreamResponse', Code.Unavailable);
}

/** Throws the error in the last message of a stream, if there is one. */
function throwErrorIn({ bytes }: RpcFrame): void {
  const { error } = membersOf(JSON.parse(bytes.toString()));
  if (error !== undefined) throw errorOf(error, Code.Unknown, '');
}

async function errorOfAnswer(response: IncomingMessage): Promise<ConnectError> {
  const { statusCode = 0 } = response;
  const code = CODES[statusCode] ?? Code.Unknown;
  const status = `HTTP ${statusCode}`;
  const text = (await readBytes(response, MAX_ERROR).catch(() => '')).toString();
  try {
    return errorOf(JSON.parse(text), code, status);
  } catch {
    return new ConnectError(status, code);
  }
}

/** Returns the error that JSON describes; what is missing in it is `code` and `message`. */
function errorOf(json: unknown, code: Code, message: string): ConnectError {
  const told = membersOf(json);
  return new ConnectError(
    typeof told.message === 'string' ? told.message : message,
    typeof told.code === 'string' ? codeOf(told.code) : code,
  );
}

function membersOf(json: unknown): Readonly<Record<string, unknown>> {
  return typeof json === 'object' && json !== null ? { ...json } : {};
}

/** Returns the code of a name such as `not_found`. */
function codeOf(name: string): Code {
  const key = name.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase());
  const code: unknown = Code[key as keyof typeof Code];
  return typeof code === 'number' ? code : Code.Unknown;
}
