import { finished, type Readable, Writable } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { MOST_PARTS, tooManyParts } from '../../bodies/body-limits.ts';
import { bodyError } from './body.ts';

/** The headers of a part may have this many bytes, which is enough for a path (PATH_MAX); the rest is ignored. */
const MAX_HEADERS = 16 * 1024;
/** When this many bytes of a part are buffered, the daemon stops reading from the connection. */
const HIGH_WATER_MARK = 512 * 1024;

/** Every part is treated as a file, because the parser collects other parts in memory. File names keep their directories. */
const OPTIONS = {
  limits: { parts: MOST_PARTS, headerSize: MAX_HEADERS },
  preservePath: true,
  isPartAFile: () => true,
  fileHwm: HIGH_WATER_MARK,
  highWaterMark: HIGH_WATER_MARK,
};

/** A part of a multipart body, with the names that the client has sent. */
export interface Part {
  readonly name: string | undefined;
  readonly fileName: string | undefined;
  /** The reader may stop early; the rest is skipped. */
  readonly content: Readable;
}

/**
 * Yields the parts of `body`, a decoded multipart body, one after the other. Throws an error with status 413 for too many parts, and
 * the errors of `bodyError`.
 */
export async function* partsOf(body: Readable, contentType: string): AsyncGenerator<Part> {
  const form = new Form(openParser(contentType));
  const stopWaiting = finished(body, { writable: false }, (error) => error && form.fail(error));
  body.pipe(form);
  try {
    for (let part = await form.next(); part; part = await form.next()) {
      yield part;
      part.content.resume();
    }
  } catch (error) {
    throw bodyError(error);
  } finally {
    stopWaiting();
    body.unpipe(form);
  }
}

function openParser(contentType: string): BusboyInstance {
  try {
    return new Busboy({ headers: { 'content-type': contentType }, ...OPTIONS });
  } catch (error) {
    throw bodyError(error);
  }
}

/**
 * Passes a body on to the parser, and keeps the parts that have begun. It passes on a piece only when all parts of the piece before
 * were taken. Otherwise the parser would parse thousands of small parts ahead of their reader, and keep them.
 */
class Form extends Writable {
  readonly #parser: BusboyInstance;
  /** `on` of node:events would allocate 32 KiB for each body. */
  readonly #begun: Part[] = [];
  #last: BusboyFileStream | null = null;
  /** Whether the body has had no byte. An empty body is a form without parts, and not one that was cut off. */
  #isEmpty = true;
  #end: { readonly error: unknown } | null = null;
  #proceed: (() => void) | null = null;
  #wake: () => void = () => {};

  constructor(parser: BusboyInstance) {
    super();
    this.#parser = parser;
    parser.on('file', (name, file, fileName) => {
      this.#last = file;
      // The reader of the part gets its error. Without a reader it would be uncaught.
      file.on('error', () => {});
      this.#begun.push({ name, fileName, content: file });
      this.#wake();
    });
    parser.on('partsLimit', () => this.#endParts(tooManyParts()));
    parser.on('error', (error) => this.#endParts(error));
    parser.on('finish', () => this.#endParts(null));
  }

  /** Takes the next part. Returns null after the last one. Throws the error that ended the parts. */
  async next(): Promise<Part | null> {
    if (this.#begun.length === 0 && !this.#end) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    const part = this.#begun.shift();
    if (this.#begun.length === 0) this.#goOn();
    if (part) return part;
    const error = this.#end?.error ?? null;
    if (error !== null) throw error;
    return null;
  }

  /** Ends the parts, and the last one that has begun, because the body has failed. */
  fail(error: Error): void {
    this.#last?.destroy(error);
    this.#endParts(error);
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#isEmpty = false;
    this.#parser.write(piece, () => {
      this.#proceed = done;
      if (this.#begun.length === 0) this.#goOn();
    });
  }

  override _final(done: () => void): void {
    if (this.#isEmpty) this.#endParts(null);
    else this.#parser.end();
    done();
  }

  /** The first call counts; its `error`, unless it is null, is thrown after the last part. */
  #endParts(error: unknown): void {
    this.#end ??= { error };
    this.#wake();
  }

  #goOn(): void {
    const proceed = this.#proceed;
    // The next piece may be written, and wait, before the call returns.
    this.#proceed = null;
    proceed?.();
  }
}
