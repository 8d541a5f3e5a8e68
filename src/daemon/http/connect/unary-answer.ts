import type { ServerResponse } from 'node:http';
import { Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createBrotliCompress, createGzip } from 'node:zlib';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import { endWith } from '../../../base/buffers.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { CallScope } from '../admission/call-scope.ts';
import type { Codec } from './codec.ts';
import { toConnectError } from './errors.ts';
import { Sending } from './sending.ts';

/** Compression of a response. */
export type Encoding = 'gzip' | 'br';

/** Where and how a response is sent. */
export interface Destination {
  readonly call: CallScope;
  readonly codec: Codec;
  /** The compression of the response, or null. */
  readonly encoding: Encoding | null;
}

/** Smaller answers are not counted: their sum is bounded by the number of connections. */
const COUNTED_BYTES = 64 * 1024;

const ENCODERS: Readonly<Record<Encoding, () => Transform>> = { gzip: createGzip, br: createBrotliCompress };
/** Minimum size of a compressed response; the same as connect-node's. */
export const COMPRESSED_BYTES = 1024;

/** Sends an encoded message. Throws `aborted` when the client disconnects. */
export function sendAnswer(to: Destination, message: string | readonly Uint8Array[]): Promise<void> | void {
  if (typeof message !== 'string') return sendChunks(to, message);
  const { encoding, call } = to;
  if (encoding !== null) return sendChunks(to, [Buffer.from(message)]);
  const length = Buffer.byteLength(message);
  hold(call, length);
  call.response.writeHead(200, [...typeOf(to), 'content-length', String(length)]);
  call.response.end(message);
}

async function sendChunks(to: Destination, chunks: readonly Uint8Array[]): Promise<void> {
  const { encoding, call } = to;
  const { response } = call;
  const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  hold(call, length);
  if (encoding !== null && length >= COMPRESSED_BYTES) {
    response.writeHead(200, [...typeOf(to), 'content-encoding', encoding]);
    return flow(chunks, response, ENCODERS[encoding]());
  }
  response.writeHead(200, [...typeOf(to), 'content-length', String(length)]);
  const [only] = chunks;
  if (only && chunks.length === 1) endWith(response, Buffer.from(only.buffer, only.byteOffset, only.length));
  else await flow(chunks, response, null);
}

/** Counts a large answer until it has been taken. */
function hold({ response, shared }: CallScope, length: number): void {
  if (length > COUNTED_BYTES) new Sending(response, shared.unread).wait(length);
}

function typeOf({ codec }: Destination): string[] {
  return ['content-type', codec === 'json' ? 'application/json' : 'application/proto'];
}

/** Sends an error in the shape of Connect's unary calls. */
export function sendError(response: ServerResponse, error: unknown): void {
  const failure = toConnectError(error);
  const body = JSON.stringify(errorToJson(failure, {}));
  const length = String(Buffer.byteLength(body));
  const own = ['content-type', 'application/json', 'content-length', length];
  response.writeHead(codeToHttpStatus(failure.code), own);
  response.end(body);
}

async function flow(
  chunks: readonly Uint8Array[],
  response: ServerResponse,
  encoder: Transform | null,
): Promise<void> {
  const body = Readable.from(chunks, { objectMode: false });
  try {
    if (encoder) await pipeline(body, encoder, response);
    else await pipeline(body, response);
  } catch (error) {
    throw new EnvdError('aborted', 'client disconnected', { cause: error });
  }
}
