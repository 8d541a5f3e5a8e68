import { on } from 'node:events';
import { finished, type Readable, Writable } from 'node:stream';
import { Busboy, type BusboyFileStream, type BusboyInstance } from '@fastify/busboy';
import { HttpError } from '../../../../base/errors.ts';
import { bodyError } from './body.ts';

/** Maximum number of parts of a body, including skipped ones: the parser uses memory for each. */
const MAX_PARTS = 10_000;
/** Maximum bytes of the headers of a part, enough for a path (PATH_MAX); the rest is ignored. */
const MAX_HEADERS = 16 * 1024;
/** Bytes of a part that are buffered before reading from the connection stops. */
const HIGH_WATER_MARK = 512 * 1024;

/** Every part is treated as a file, so that none is collected in memory; file names keep their directories. */
const OPTIONS = {
  limits: { parts: MAX_PARTS, headerSize: MAX_HEADERS },
  preservePath: true,
  isPartAFile: () => true,
  fileHwm: HIGH_WATER_MARK,
  highWaterMark: HIGH_WATER_MARK,
};

/** A part of a multipart body; names as sent by the client. */
export interface Part {
  readonly name: string | undefined;
  readonly fileName: string | undefined;
  /** What is not read of it is skipped. */
  readonly content: Readable;
}

/**
 * The parts of `body`, a multipart body after decoding, one after the other. Throws an error with status 413 for too many
 * parts, and as `bodyError` does.
 */
export async function* partsOf(body: Readable, contentType: string): AsyncGenerator<Part> {
  const parser = openParser(contentType);
  const files = on(parser, 'file', { close: ['finish'] });
  const feed = new Feed(parser);
  let last: BusboyFileStream | null = null;
  parser.on('file', (_name, file) => {
    last = file;
    feed.hold();
    // Whoever reads it gets its error; when nobody does, it would be uncaught.
    file.on('error', () => {});
  });
  // The same, when the last part has been taken.
  parser.on('error', () => {});
  parser.on('partsLimit', () =>
    files.throw?.(new HttpError(413, `multipart body has more than ${MAX_PARTS} parts`)),
  );
  const stopWaiting = finished(body, { writable: false }, (error) => {
    if (error) {
      last?.destroy(error);
      files.throw?.(error);
    } else if (feed.isEmpty) files.return?.();
  });
  body.pipe(feed);
  try {
    for await (const [name, content, fileName] of files) {
      feed.release();
      yield { name, fileName, content };
      content.resume();
    }
  } catch (error) {
    throw bodyError(error);
  } finally {
    stopWaiting();
    body.unpipe(feed);
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
 * Passes a body on to the parser, each piece only when all parts that began in the one before have been taken: otherwise
 * the contents of thousands of small parts would be parsed ahead of their reader, and kept.
 */
class Feed extends Writable {
  /** Whether the body had no byte so far: then it is a form without parts, not one that was cut off. */
  isEmpty = true;
  readonly #parser: BusboyInstance;
  /** Parts that have begun and were not taken. */
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
