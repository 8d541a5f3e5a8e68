import { finished, type Readable, Transform, type TransformCallback } from 'node:stream';
import type { MultipartFile } from '@fastify/multipart';
import type { FastifyRequest } from 'fastify';
import { HttpError } from '../../../../base/errors.ts';
import { bodyError } from './body.ts';

/** Maximum number of parts of a body, including skipped ones: the plugin uses memory for each. */
const MAX_PARTS = 10_000;
/** Maximum bytes of the headers of a part, enough for a path (PATH_MAX); the rest is ignored. */
const MAX_HEADERS = 16 * 1024;
/** Bytes of a part that are buffered before reading from the connection stops. */
const HIGH_WATER_MARK = 256 * 1024;

const LIMITS = { parts: MAX_PARTS, headerSize: MAX_HEADERS, fileSize: Number.POSITIVE_INFINITY };

/** Treats every part as a file, so that none is collected in memory; file names keep their directories. */
export const MULTIPART_OPTIONS = {
  limits: LIMITS,
  throwFileSizeLimit: false,
  preservePath: true,
  isPartAFile: () => true,
  fileHwm: HIGH_WATER_MARK,
  highWaterMark: HIGH_WATER_MARK,
};

/** A part of a multipart body; names as sent by the client. */
export interface Part {
  readonly name: string | undefined;
  readonly fileName: string | undefined;
  /** To be read to its end, or skipped, before the next part is requested. */
  readonly content: AsyncIterable<Buffer>;
  skip(): void;
}

/**
 * The parts of `body`, the multipart body of `request` after decoding. Throws an error with status 413 for too many parts,
 * and the errors of the parser and of `body`; reading the content of a part throws these, too.
 */
export async function* partsOf(request: FastifyRequest, body: Readable): AsyncGenerator<Part> {
  const throttle = new Throttle();
  const removeListeners = finished(body, { writable: false }, (error) => {
    if (error) throttle.destroy(error);
  });
  const parts = withBody(request, body.pipe(throttle)).parts() as AsyncIterableIterator<MultipartFile>;
  try {
    for (;;) {
      const { value: part, done } = await throttle.openUntil(parts.next());
      if (done) return;
      const { fieldname: name, filename: fileName, file } = part;
      yield { name, fileName, content: contentOf(file, throttle), skip: () => void file.resume() };
    }
  } catch (error) {
    throw isTooMany(error)
      ? new HttpError(413, `multipart body has more than ${MAX_PARTS} parts`)
      : bodyError(error);
  } finally {
    removeListeners();
    body.unpipe(throttle);
    throttle.destroy();
  }
}

async function* contentOf(file: Readable, throttle: Throttle): AsyncGenerator<Buffer> {
  const pieces: AsyncIterator<Buffer> = file.iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      const { value, done } = await throttle.openUntil(pieces.next());
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw bodyError(error);
  }
}

/**
 * Passes bytes to the parser only while a reader waits for a result. Otherwise the plugin would read ahead and buffer the
 * contents of thousands of small parts.
 */
class Throttle extends Transform {
  #waiting = 0;
  #pass: (() => void) | null = null;

  constructor() {
    super();
    // Readers get the error; without a reader it would be uncaught.
    this.on('error', () => {});
  }

  /** Passes bytes until `result` settles. */
  async openUntil<T>(result: Promise<T>): Promise<T> {
    this.#waiting++;
    this.#pass?.();
    try {
      return await result;
    } finally {
      this.#waiting--;
    }
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#pass = () => {
      this.#pass = null;
      done(null, chunk);
    };
    // Deferred: the chunks passed so far may complete the awaited result.
    setImmediate(() => {
      if (this.#waiting > 0) this.#pass?.();
    });
  }
}

/** A request with `body` for the plugin, which reads `raw` and takes the boundary from its headers. */
function withBody(request: FastifyRequest, body: Readable): FastifyRequest {
  const raw = Object.assign(body, { headers: request.raw.headers });
  return Object.create(request, { raw: { value: raw } });
}

function isTooMany(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'FST_PARTS_LIMIT';
}
