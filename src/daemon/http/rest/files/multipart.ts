import { on } from 'node:events';
import { finished, type Readable, Writable } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { HttpError } from '../../../../base/errors.ts';
import { bodyError } from './body.ts';

/** A body may have so many parts, including skipped ones, because the parser uses memory for each. */
const MAX_PARTS = 10_000;
/** The headers of a part may have so many bytes, which is enough for a path (PATH_MAX); the rest is ignored. */
const MAX_HEADERS = 16 * 1024;
/** When so many bytes of a part are buffered, the daemon stops reading from the connection. */
const HIGH_WATER_MARK = 512 * 1024;

/** Every part is treated as a file, because the parser collects other parts in memory. File names keep their directories. */
const OPTIONS = {
  limits: { parts: MAX_PARTS, headerSize: MAX_HEADERS },
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
  const files = on(parser, 'file', { close: ['finish'] });
  const input = new PacedInput(parser);
  let last: BusboyFileStream | null = null;
  parser.on('file', (_name, file) => {
    last = file;
    input.hold();
    // The reader of the part gets its error. Without a reader it would be uncaught.
    file.on('error', () => {});
  });
  // An error after the last part was taken would be uncaught too.
  parser.on('error', () => {});
  parser.on('partsLimit', () =>
    files.throw?.(new HttpError(413, `multipart body has more than ${MAX_PARTS} parts`)),
  );
  const stopWaiting = finished(body, { writable: false }, (error) => {
    if (error) {
      last?.destroy(error);
      files.throw?.(error);
    } else if (input.isEmpty) files.return?.();
  });
  body.pipe(input);
  try {
    for await (const [name, content, fileName] of files) {
      input.release();
      yield { name, fileName, content };
      content.resume();
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
