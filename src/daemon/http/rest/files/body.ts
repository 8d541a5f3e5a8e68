import type { IncomingMessage } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { EnvdError, HttpError, messageOf } from '../../../../base/errors.ts';
import type { BodyCheck } from './content-digests.ts';

const CHUNK = 64 * 1024;

/** The decoded body of a request. The constructor throws `invalid_argument` for an unsupported coding. */
export class RequestBody {
  readonly stream: Readable;
  readonly #request: IncomingMessage;
  readonly #check: BodyCheck | null;
  readonly #isCoded: boolean;

  /** `isCompressed` says that the content itself is a gzip file, which is decoded like a content coding. */
  constructor(request: IncomingMessage, check: BodyCheck | null, isCompressed = false) {
    this.#isCoded = isGzip(request.headers['content-encoding']) || isCompressed;
    this.#request = request;
    // The check comes before the decoding, because digests are of the coded content.
    this.#check = check && through(request, request, check);
    const sent = this.#check ?? request;
    this.stream = this.#isCoded ? through(request, sent, createGunzip({ chunkSize: CHUNK })) : sent;
  }

  /** The length in bytes; null when it is unknown or the body is coded. */
  get length(): number | null {
    const announced = this.#request.headers['content-length'];
    return announced === undefined || this.#isCoded ? null : Number(announced);
  }

  /** Reads the rest of the body. Throws `invalid_argument` when a digest does not match, and `aborted` for an incomplete body. */
  async verify(): Promise<void> {
    await this.#check?.verify();
  }

  /** Discards the rest of the request, because many clients read the response only after they have sent everything. */
  drain(): void {
    this.#request.unpipe();
    if (this.stream !== this.#request) this.stream.destroy();
    this.#check?.destroy();
    this.#request.resume();
  }
}

function isGzip(contentEncoding: string | undefined): boolean {
  const coding = (contentEncoding ?? 'identity').trim().toLowerCase();
  if (coding === 'identity' || coding === '') return false;
  if (coding === 'gzip' || coding === 'x-gzip') return true;
  throw new EnvdError('invalid_argument', `content coding '${coding}' is not supported: use gzip`);
}

/** Pipes `source`, a stream of `request`, through `step`. Destroys `step` when the request ends early. */
function through<Step extends Transform>(request: IncomingMessage, source: Readable, step: Step): Step {
  const onEnd = () => {
    if (!request.readableEnded) step.destroy(incompleteBody());
  };
  request.once('error', onEnd).once('close', onEnd);
  // Readers get the error. Without a reader it would be uncaught.
  step.on('error', () => {});
  return source.pipe(step);
}

/** Converts an error of reading a body into one for the client. */
export function bodyError(error: unknown): EnvdError | HttpError {
  if (error instanceof EnvdError || error instanceof HttpError) return error;
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  if (CONNECTION_CODES.has(code)) return incompleteBody(error);
  const kind = code.startsWith('Z_') ? 'gzip' : 'multipart';
  const message = `request body is not valid ${kind}: ${messageOf(error)}`;
  return new EnvdError('invalid_argument', message, { cause: error });
}

const CONNECTION_CODES = new Set(['ECONNRESET', 'EPIPE', 'ABORT_ERR', 'ERR_STREAM_PREMATURE_CLOSE']);

function incompleteBody(cause?: unknown): EnvdError {
  return new EnvdError('aborted', 'request ended before its body was complete', { cause });
}
