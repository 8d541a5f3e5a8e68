import { finished, type Readable, Transform, type TransformCallback } from 'node:stream';
import type { MultipartFile } from '@fastify/multipart';
import type { FastifyRequest } from 'fastify';
import { HttpError } from '../../../../base/errors.ts';
import { bodyError } from './body.ts';

/** Parts of one body, those that are skipped included: the plugin keeps something of each. */
const MAX_PARTS = 10_000;
/** Bytes of the headers of one part, which hold a path (PATH_MAX); what is beyond is not seen. */
const MAX_HEADERS = 16 * 1024;
/** Bytes of one part that are kept before the network is told to wait. */
const HIGH_WATER_MARK = 256 * 1024;

const LIMITS = { parts: MAX_PARTS, headerSize: MAX_HEADERS, fileSize: Number.POSITIVE_INFINITY };

/** Every part is a stream, so that none is collected in memory; file names keep their directories. */
export const MULTIPART_OPTIONS = {
  limits: LIMITS,
  throwFileSizeLimit: false,
  preservePath: true,
  isPartAFile: () => true,
  fileHwm: HIGH_WATER_MARK,
  highWaterMark: HIGH_WATER_MARK,
};

/** One part of a multipart body; names as the client sent them, undefined when it sent none. */
export interface Part {
  readonly name: string | undefined;
  readonly fileName: string | undefined;
  /** To be read to its end, or skipped, before the next part is asked for. */
  readonly content: AsyncIterable<Buffer>;
  skip(): void;
}

/**
 * The parts of a multipart body, `body` being the request's own or decoded from it. Throws an error with the status 413
 * for too many parts, and the errors of the parser and of `body`, as their contents do.
 */
export async function* partsOf(request: FastifyRequest, body: Readable): AsyncGenerator<Part> {
  const gate = new Gate();
  const forget = finished(body, { writable: false }, (error) => {
    if (error) gate.destroy(error);
  });
  const parts = viewOf(request, body.pipe(gate)).parts() as AsyncIterableIterator<MultipartFile>;
  try {
    for (;;) {
      const { value: part, done } = await gate.during(parts.next());
      if (done) return;
      const { fieldname: name, filename: fileName, file } = part;
      yield { name, fileName, content: contentOf(file, gate), skip: () => void file.resume() };
    }
  } catch (error) {
    throw isTooMany(error)
      ? new HttpError(413, `multipart body has more than ${MAX_PARTS} parts`)
      : bodyError(error);
  } finally {
    forget();
    body.unpipe(gate);
    gate.destroy();
  }
}

async function* contentOf(file: Readable, gate: Gate): AsyncGenerator<Buffer> {
  const pieces: AsyncIterator<Buffer> = file.iterator({ destroyOnReturn: false });
  try {
    for (;;) {
      const { value, done } = await gate.during(pieces.next());
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw bodyError(error);
  }
}

/**
 * Lets bytes through while somebody waits for what is in them. The plugin would go on by itself, and keep the contents
 * of small parts, thousands of them, that nobody has asked for yet.
 */
class Gate extends Transform {
  #waiting = 0;
  #pass: (() => void) | null = null;

  constructor() {
    super();
    // Whoever reads gets the error as well; this is for when nobody does any more.
    this.on('error', () => {});
  }

  /** Open until `result` is there. */
  async during<T>(result: Promise<T>): Promise<T> {
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
    // Not at once: what has been let through may hold what is waited for.
    setImmediate(() => {
      if (this.#waiting > 0) this.#pass?.();
    });
  }
}

/** The plugin reads `raw` of what it is called on, and looks for the boundary in its headers. */
function viewOf(request: FastifyRequest, body: Readable): FastifyRequest {
  const raw = Object.assign(body, { headers: request.raw.headers });
  return Object.create(request, { raw: { value: raw } });
}

function isTooMany(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'FST_PARTS_LIMIT';
}
