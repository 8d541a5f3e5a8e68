import type { IncomingMessage } from 'node:http';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { EnvdError, messageOf } from '../../../base/errors.ts';

const CHUNK = 64 * 1024;

/** A request's body with its content coding undone. Throws `invalid_argument` for a coding we do not know. */
export class RequestBody {
  readonly stream: Readable;
  readonly #request: IncomingMessage;

  constructor(request: IncomingMessage) {
    this.#request = request;
    this.stream = decode(request);
  }

  /** Bytes that will come, when that is announced. */
  get length(): number | null {
    const announced = this.#request.headers['content-length'];
    return announced === undefined || this.stream !== this.#request ? null : Number(announced);
  }

  /**
   * Lets what is left of the request run into the void: the client gets to read the answer only when it has been
   * able to send everything.
   */
  drain(): void {
    this.#request.unpipe();
    if (this.stream !== this.#request) this.stream.destroy();
    this.#request.resume();
  }
}

function decode(request: IncomingMessage): Readable {
  const coding = (request.headers['content-encoding'] ?? 'identity').trim().toLowerCase();
  if (coding === 'identity' || coding === '') return request;
  if (coding !== 'gzip' && coding !== 'x-gzip') {
    throw new EnvdError('invalid_argument', `content coding '${coding}' is not supported: use gzip`);
  }
  const gunzip = createGunzip({ chunkSize: CHUNK });
  const breakOff = () => {
    if (!request.readableEnded) gunzip.destroy(brokenOff());
  };
  request.once('error', breakOff).once('close', breakOff);
  // Whoever reads gets the error as well; this is for when nobody does any more.
  gunzip.on('error', () => {});
  return request.pipe(gunzip);
}

/** The bytes of `source`, which is left open when nobody wants more: it may be the request. */
export async function* bytesOf(source: Readable): AsyncGenerator<Buffer> {
  try {
    yield* source.iterator({ destroyOnReturn: false });
  } catch (error) {
    throw bodyError(error);
  }
}

/** What went wrong while a body was read, in words about the body. */
export function bodyError(error: unknown): EnvdError {
  if (error instanceof EnvdError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (CONNECTION_CODES.has(code)) return brokenOff(error);
  const kind = code.startsWith('Z_') ? 'gzip' : 'multipart';
  const message = `request body is not valid ${kind}: ${messageOf(error)}`;
  return new EnvdError('invalid_argument', message, { cause: error });
}

const CONNECTION_CODES = new Set([
  'ECONNRESET',
  'EPIPE',
  'ABORT_ERR',
  'ERR_STREAM_PREMATURE_CLOSE',
  'FST_MP_PREMATURE_CLOSE',
]);

function brokenOff(cause?: unknown): EnvdError {
  return new EnvdError('aborted', 'request broke off before its end', { cause });
}
