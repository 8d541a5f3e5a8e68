import { finished, type Readable, Writable } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { MOST_PARTS, tooManyParts } from '../../bodies/body-limits.ts';
import { bodyError } from './body.ts';

/** The headers of a part may have so many bytes, which is enough for a path (PATH_MAX); the rest is ignored. */
const MAX_HEADERS = 16 * 1024;
/** When so many bytes of a part are buffered, the daemon stops reading from the connection. */
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
  const parser = openParser(contentType);
  const begun = new BegunParts();
  const input = new PacedInput(parser);
  let last: BusboyFileStream | null = null;
  parser.on('file', (name, file, fileName) => {
    last = file;
    input.hold();
    // The reader of the part gets its error. Without a reader it would be uncaught.
    file.on('error', () => {});
    begun.add({ name, fileName, content: file });
  });
  parser.on('error', (error) => begun.end(error));
  parser.on('finish', () => begun.end(null));
  parser.on('partsLimit', () => begun.end(tooManyParts()));
  const stopWaiting = finished(body, { writable: false }, (error) => {
    if (error) {
      last?.destroy(error);
      begun.end(error);
    } else if (input.isEmpty) begun.end(null);
  });
  body.pipe(input);
  try {
    for (let part = await begun.next(); part; part = await begun.next()) {
      input.release();
      yield part;
      part.content.resume();
    }
  } catch (error) {
    throw bodyError(error);
  } finally {
    stopWaiting();
    body.unpipe(input);
  }
}

function openParser(contentType: string): BusboyInstance {
  try {
    return new Busboy({ headers: { 'content-type': contentType }, ...OPTIONS });
  } catch (error) {
    throw bodyError(error);
  }
}

/** Parts that have begun and were not taken. `on` of node:events would allocate 32 KiB for each body. */
class BegunParts {
  readonly #parts: Part[] = [];
  #end: { readonly error: unknown } | null = null;
  #wake: () => void = () => {};

  add(part: Part): void {
    this.#parts.push(part);
    this.#wake();
  }

  /** Ends the parts. The first call counts; its `error`, unless it is null, is thrown after the last part. */
  end(error: unknown): void {
    this.#end ??= { error };
    this.#wake();
  }

  /** Takes the next part. Returns null after the last one. Throws the error that ended the parts. */
  async next(): Promise<Part | null> {
    if (this.#parts.length === 0 && !this.#end) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    const part = this.#parts.shift();
    if (part) return part;
    const error = this.#end?.error ?? null;
    if (error !== null) throw error;
    return null;
  }
}

/**
 * Passes a body on to the parser. It passes on a piece only when all parts that began in the piece before were taken. Otherwise the
 * parser would parse thousands of small parts ahead of their reader, and keep them.
 */
class PacedInput extends Writable {
  /** Whether the body has had no byte. An empty body is a form without parts, and not one that was cut off. */
  isEmpty = true;
  readonly #parser: BusboyInstance;
  /** The number of parts that have begun and were not taken. */
  #held = 0;
  #proceed: (() => void) | null = null;

  constructor(parser: BusboyInstance) {
    super();
    this.#parser = parser;
  }

  hold(): void {
    this.#held++;
  }

  release(): void {
    if (--this.#held > 0) return;
    this.#proceed?.();
    this.#proceed = null;
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.isEmpty = false;
    this.#parser.write(piece, () => {
      if (this.#held === 0) done();
      else this.#proceed = done;
    });
  }

  override _final(done: () => void): void {
    if (!this.isEmpty) this.#parser.end();
    done();
  }
}
