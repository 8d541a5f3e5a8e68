import { EventEmitter } from 'node:events';
import { finished, type Readable, type Writable } from 'node:stream';
import type { MultipartFile } from '@fastify/multipart';
import type { FastifyRequest } from 'fastify';
import type { Allowance } from '../../../../base/allowance.ts';
import { HttpError } from '../../../../base/errors.ts';
import type { Sink } from '../../../services/files/uploads/sink.ts';
import { bodyError } from './body.ts';
import { pump } from './pump.ts';

/** Maximum number of parts of a body, including skipped ones: the plugin uses memory for each. */
const MAX_PARTS = 10_000;
/** Maximum bytes of the headers of a part, enough for a path (PATH_MAX); the rest is ignored. */
const MAX_HEADERS = 16 * 1024;
/** Bytes of a part that are buffered before reading from the connection stops. */
const HIGH_WATER_MARK = 512 * 1024;
/** Bytes of one write: behind the parser, a wait for the disk costs more than in a raw upload. */
const BATCH_BYTES = 1024 * 1024;

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
  /** Pushes the content into the sink. What is not pumped is skipped. */
  pump(sink: Sink): Promise<void>;
}

/**
 * Calls `receive` for one part after the other of `stream`, the multipart body of `request` after decoding. `room`: see
 * `pump`. Throws an error with status 413 for too many parts, and the errors of the parser and of `body`.
 */
export async function deliverParts(
  request: FastifyRequest,
  { stream, room }: { readonly stream: Readable; readonly room: Allowance },
  receive: (part: Part) => Promise<void>,
): Promise<void> {
  const feed = new Feed(request, stream);
  try {
    for (let part = await feed.next(); part !== null; part = await feed.next()) {
      const { fieldname: name, filename: fileName, file } = part;
      await receive({ name, fileName, pump: (sink) => feed.pump(file, sink, room) });
      file.resume();
    }
  } finally {
    feed.end();
  }
}

/**
 * Stands in for the request at the plugin, which pipes it to its parser. Passes chunks of the body on only while
 * something waits for them: otherwise the plugin would read ahead and buffer the contents of thousands of small parts.
 */
class Feed extends EventEmitter {
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly aborted = false;
  readableEnded = false;
  readonly #body: Readable;
  readonly #parts: AsyncIterator<MultipartFile>;
  readonly #removeListeners: () => void;
  #parser: Writable | null = null;
  /** A chunk that nothing waits for yet. */
  #held: Buffer | null = null;
  /** Whether the next part is awaited. */
  #isAwaited = false;
  /** The part that is being pumped. */
  #file: Readable | null = null;
  /** Bytes of the part that the last chunk has brought. */
  #brought = 0;

  constructor(request: FastifyRequest, body: Readable) {
    super();
    this.headers = { 'content-type': request.headers['content-type'] };
    this.#body = body;
    const standIn: FastifyRequest = Object.create(request, { raw: { value: this } });
    this.#parts = standIn.parts() as AsyncIterableIterator<MultipartFile>;
    this.#removeListeners = finished(body, { writable: false }, (error) => this.#finish(error));
    body.on('data', this.#take);
  }

  /** Called by the plugin. */
  pipe(parser: Writable): void {
    this.#parser = parser;
  }

  /** Called by the plugin, at the end. */
  unpipe(): void {
    this.#parser = null;
  }

  /** The next part; null at the end. */
  async next(): Promise<MultipartFile | null> {
    this.#isAwaited = true;
    try {
      const next = this.#parts.next();
      this.#check();
      const { value, done } = await next;
      return done ? null : value;
    } catch (error) {
      throw isTooMany(error)
        ? new HttpError(413, `multipart body has more than ${MAX_PARTS} parts`)
        : bodyError(error);
    } finally {
      this.#isAwaited = false;
    }
  }

  async pump(file: Readable, sink: Sink, room: Allowance): Promise<void> {
    const count = (piece: Buffer) => {
      this.#brought += piece.length;
    };
    this.#file = file.on('data', count).on('resume', this.#check);
    try {
      await pump(file, sink, room, BATCH_BYTES);
    } catch (error) {
      throw bodyError(error);
    } finally {
      this.#file = null;
      file.off('data', count).off('resume', this.#check);
    }
  }

  /** Leaves the rest of the body unread. */
  end(): void {
    this.#removeListeners();
    this.#body.off('data', this.#take);
    this.#parser = null;
  }

  #isWanted(): boolean {
    const file = this.#file;
    return this.#isAwaited || (file?.readableFlowing === true && !file.readableEnded);
  }

  readonly #take = (chunk: Buffer): void => {
    if (!this.#isWanted()) {
      this.#held = chunk;
      this.#body.pause();
      return;
    }
    this.#pass(chunk);
    // The chunk was all content of the part being pumped, which waits for more.
    if (this.#brought === chunk.length) return;
    this.#body.pause();
    setImmediate(this.#check);
  };

  #pass(chunk: Buffer): void {
    this.#brought = 0;
    this.emit('data', chunk);
    this.#parser?.write(chunk);
  }

  /**
   * Reads on if something waits. Called when promises and streams have settled: only then is it known whether the last
   * chunk was enough.
   */
  readonly #check = (): void => {
    if (!this.#isWanted()) return;
    const chunk = this.#held;
    this.#held = null;
    if (chunk) {
      this.#pass(chunk);
      setImmediate(this.#check);
    } else if (this.readableEnded) this.#parser?.end();
    else this.#body.resume();
  };

  #finish(error: Error | null | undefined): void {
    if (error) {
      this.emit('error', error);
      return;
    }
    this.readableEnded = true;
    this.#check();
  }
}

function isTooMany(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'FST_PARTS_LIMIT';
}
