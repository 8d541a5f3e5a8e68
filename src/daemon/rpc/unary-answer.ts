import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { Readable, type Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createBrotliCompress, createGzip } from 'node:zlib';
import { codeToHttpStatus, errorToJson } from '@connectrpc/connect/protocol-connect';
import { EnvdError } from '../../base/errors.ts';
import type { Codec } from './codec.ts';
import { toConnectError } from './errors.ts';

/** Compression of a response. */
export type Encoding = 'gzip' | 'br';

const ENCODERS: Readonly<Record<Encoding, () => Transform>> = { gzip: createGzip, br: createBrotliCompress };
/** Minimum size of a compressed response; the same as connect-node's. */
const COMPRESSED_BYTES = 1024;

/** Sends an encoded message. Throws `aborted` when the client disconnects. */
export async function sendAnswer(
  response: ServerResponse,
  codec: Codec,
  chunks: readonly Uint8Array[],
  encoding: Encoding | null,
): Promise<void> {
  const length = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  const headers: OutgoingHttpHeaders = {
    'content-type': codec === 'json' ? 'application/json' : 'application/proto',
  };
  if (encoding !== null && length >= COMPRESSED_BYTES) {
    response.writeHead(200, { ...headers, 'content-encoding': encoding });
    return flow(chunks, response, ENCODERS[encoding]());
  }
  response.writeHead(200, { ...headers, 'content-length': length });
  if (chunks.length === 1) response.end(chunks[0]);
  else await flow(chunks, response, null);
}

/** Sends an error in the shape of Connect's unary calls. */
export function sendError(response: ServerResponse, error: unknown): void {
  const failure = toConnectError(error);
  const body = JSON.stringify(errorToJson(failure, {}));
  response.writeHead(codeToHttpStatus(failure.code), {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
  });
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
