import { finished, type Readable, Transform, type TransformCallback } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import type { FastifyRequest } from 'fastify';
import { HttpError } from '../../errors.ts';
import { bodyError, brokenOff } from './body.ts';

/** Parts of one body, those that are skipped included. */
const MAX_PARTS = 10_000;
/** Bytes of the headers of one part, which hold a path (PATH_MAX); what is beyond is not seen. */
const MAX_HEADERS = 16 * 1024;
/** Bytes of one part that are kept before the network is told to wait. */
const HIGH_WATER_MARK = 256 * 1024;
/** Bytes that are parsed at once when that has taken longer than so many milliseconds. */
const SMALLEST_SLICE = 4096;
const SLOW_MS = 1;

/** One part of a multipart body; names as the client sent them, undefined when it sent none. */
export interface Part {
  readonly name: string | undefined;
  readonly fileName: string | undefined;
  readonly content: Readable;
}

/**
 * The parts of a multipart body, `body` being the request's own or decoded from it. Each must be read to its end before
 * the next is asked for: what follows is not parsed earlier, but for what the network has delivered with it. Throws an
 * error with the status 413 for too many parts, and the errors of the parser and of `body`, as their contents do.
 */
export async function* partsOf({ headers }: FastifyRequest, body: Readable): AsyncGenerator<Part> {
  const parser = parserOf(headers['content-type'] ?? '');
  const forget = finished(body, { writable: false }, (error) => {
    if (error) parser.destroy(error);
  });
  body.pipe(parser);
  try {
    for await (const part of parser as AsyncIterable<Part>) yield part;
  } catch (error) {
    throw bodyError(error);
  } finally {
    forget();
    body.unpipe(parser);
    parser.destroy();
  }
}

function parserOf(contentType: string): PartParser {
  try {
    return new PartParser(contentType);
  } catch (error) {
    // A boundary that is missing, or that cannot be one.
    throw bodyError(error);
  }
}

/** Bytes in, parts out: a chunk of bytes is parsed when all parts that were in the one before have been taken. */
class PartParser extends Transform {
  readonly #busboy: BusboyInstance;
  /** After the last part; some bodies come to it before they end. */
  readonly #finished: Promise<void>;
  /** Bytes to parse at once. */
  #slice = SMALLEST_SLICE;
  /** Contents that have not been read to their end. */
  readonly #open = new Set<Readable>();

  constructor(contentType: string) {
    super({ readableObjectMode: true, readableHighWaterMark: 1 });
    // Whoever reads gets the error as well; this is for when nobody does any more.
    this.on('error', () => {});
    this.#busboy = new Busboy({
      headers: { 'content-type': contentType },
      limits: { parts: MAX_PARTS, headerSize: MAX_HEADERS },
      // Directories are kept, and every part is a stream, so that none is collected in memory.
      preservePath: true,
      isPartAFile: () => true,
      fileHwm: HIGH_WATER_MARK,
      highWaterMark: HIGH_WATER_MARK,
    });
    this.#finished = new Promise((resolve) => this.#busboy.once('finish', resolve));
    this.#busboy
      .on('file', (name, content, fileName) => this.#take({ name, fileName, content }))
      .on('partsLimit', () => {
        this.destroy(new HttpError(413, `multipart body has more than ${MAX_PARTS} parts`));
      })
      .on('error', (error) => this.destroy(error as Error));
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#parse(chunk).then(() => done(), done);
  }

  /** In slices, small ones where each takes long: a chunk can hold thousands of parts, and others have their turn. */
  async #parse(chunk: Buffer): Promise<void> {
    for (let rest = chunk; rest.length > 0 && !this.destroyed; ) {
      const slice = rest.subarray(0, this.#slice);
      rest = rest.subarray(slice.length);
      const started = performance.now();
      const parsed = new Promise<void>((resolve) => this.#busboy.write(slice, () => resolve()));
      const isSlow = performance.now() - started > SLOW_MS;
      await parsed;
      if (isSlow) await setImmediate();
      this.#slice = isSlow ? SMALLEST_SLICE : Math.min(this.#slice * 4, HIGH_WATER_MARK);
    }
  }

  override _flush(done: TransformCallback): void {
    this.#busboy.end();
    void this.#finished.then(() => done());
  }

  /** A content that is being read must not seem to have come to its end. */
  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    for (const content of this.#open) content.destroy(error ?? brokenOff());
    done(error);
  }

  #take(part: Part): void {
    const { content } = part;
    content.on('error', () => {});
    content.once('close', () => this.#open.delete(content));
    this.#open.add(content);
    this.push(part);
  }
}
