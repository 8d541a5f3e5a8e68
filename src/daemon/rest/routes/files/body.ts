import type { IncomingMessage } from 'node:http';
import type { Readable, Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { EnvdError, HttpError, messageOf } from '../../../../base/errors.ts';
import { announcedDigests, DigestCheck } from './digests.ts';

const CHUNK = 64 * 1024;

/**
 * A request's body with its content coding undone. Throws `invalid_argument` for a coding we do not know and for
 * digests that cannot be read.
 */
export class RequestBody {
  readonly stream: Readable;
  readonly #request: IncomingMessage;
  readonly #check: DigestCheck | null;
  readonly #isCoded: boolean;

  constructor(request: IncomingMessage) {
    const digests = announcedDigests(request.headers);
    this.#isCoded = isGzip(request.headers['content-encoding']);
    this.#request = request;
    // Of the bytes as they are sent: what a digest is about has its content coding.
    this.#check = digests.length > 0 ? through(request, request, new DigestCheck(digests)) : null;
    const sent = this.#check ?? request;
    this.stream = this.#isCoded ? through(request, sent, createGunzip({ chunkSize: CHUNK })) : sent;
  }

  /** Bytes that will come, when that is announced. */
  get length(): number | null {
    const announced = this.#request.headers['content-length'];
    return announced === undefined || this.#isCoded ? null : Number(announced);
  }

  /** Whether the bytes that are sent are the ones that are wanted. */
  get isPlain(): boolean {
    return !this.#isCoded && this.#check === null;
  }

  /**
   * Takes in the rest of the body. Throws `invalid_argument` when it is not the one whose digest was announced, and
   * `aborted` when it breaks off.
   */
  async verify(): Promise<void> {
    await this.#check?.verify();
  }

  /**
   * Lets what is left of the request run into the void: the client gets to read the answer only when it has been
   * able to send everything.
   */
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

/** `source`, which comes from `request`, piped through `step`; a request that breaks off breaks that off too. */
function through<Step extends Transform>(request: IncomingMessage, source: Readable, step: Step): Step {
  const breakOff = () => {
    if (!request.readableEnded) step.destroy(brokenOff());
  };
  request.once('error', breakOff).once('close', breakOff);
  // Whoever reads gets the error as well; this is for when nobody does any more.
  step.on('error', () => {});
  return source.pipe(step);
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
export function bodyError(error: unknown): EnvdError | HttpError {
  if (error instanceof EnvdError || error instanceof HttpError) return error;
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

/** The error for a body that ends before its end. */
export function brokenOff(cause?: unknown): EnvdError {
  return new EnvdError('aborted', 'request broke off before its end', { cause });
}
