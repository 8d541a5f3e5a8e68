import type { IncomingMessage } from 'node:http';
import { EnvdError, HttpError } from '../../../base/errors.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { type JsonLimits, JsonScanner } from './json-scanner.ts';

/** So many bodies may be received at a time. */
const OPEN_LIMIT = 16;
/** A body must arrive within this time. */
const TIME_LIMIT_MS = 5000;

/**
 * Reads JSON bodies of clients that may be unauthorized. It limits their size, number, time and complexity. When too many bodies
 * are being received, the oldest is refused, so that slow clients cannot lock out others.
 */
export class JsonBodies {
  readonly #limits: JsonLimits;
  /** For each body that is being received, a function that refuses it. The oldest comes first. */
  readonly #open = new Set<(reason: HttpError) => void>();

  constructor(limits: JsonLimits) {
    this.#limits = limits;
  }

  /**
   * Parses the body of a call's request, with any content type. Returns undefined for an empty one. Throws `invalid_argument` when
   * it is not JSON, an error with status 413, 408 or 503 at a limit, and `aborted` when the client disconnects.
   */
  async read(call: CallScope): Promise<unknown> {
    call.askForBody();
    return parse(await this.#receive(call.request));
  }

  #receive(request: IncomingMessage): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    if (request.destroyed) reject(interrupted());
    const text = new BoundedText(this.#limits);
    const refuse = (reason: unknown) => {
      request.off('data', take).resume();
      reject(reason);
    };
    const take = (chunk: Buffer) => {
      try {
        text.add(chunk);
      } catch (error) {
        refuse(error);
      }
    };
    this.#enter(refuse);
    const timer = setTimeout(() => refuse(tooSlow()), TIME_LIMIT_MS);
    request.on('data', take);
    request.once('end', () => resolve(text.toString()));
    request.once('close', () => {
      if (!request.readableEnded) reject(interrupted());
    });
    return promise.finally(() => {
      clearTimeout(timer);
      this.#open.delete(refuse);
    });
  }

  #enter(refuse: (reason: HttpError) => void): void {
    const [oldest] = this.#open;
    if (oldest && this.#open.size >= OPEN_LIMIT) {
      this.#open.delete(oldest);
      oldest(
        new HttpError(503, `more than ${OPEN_LIMIT} request bodies are being sent: send this one again`),
      );
    }
    this.#open.add(refuse);
  }
}

function interrupted(): EnvdError {
  return new EnvdError('aborted', 'request ended before its body was complete');
}

function tooSlow(): HttpError {
  return new HttpError(
    408,
    `request body took longer than ${TIME_LIMIT_MS / 1000} s: send all of it at once`,
  );
}

/** Collects text that arrives in chunks. They are copied into one buffer, because many small chunks would take far more memory. */
class BoundedText {
  readonly #scanner: JsonScanner;
  #bytes = Buffer.alloc(0);
  #length = 0;

  constructor(limits: JsonLimits) {
    this.#scanner = new JsonScanner(limits);
  }

  add(chunk: Buffer): void {
    this.#scanner.add(chunk);
    const length = this.#length + chunk.length;
    if (length > this.#bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(length, this.#bytes.length * 2));
      this.#bytes.copy(larger, 0, 0, this.#length);
      this.#bytes = larger;
    }
    chunk.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  toString(): string {
    return this.#bytes.toString('utf8', 0, this.#length);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (text.trim() === '') return undefined;
    // V8's message quotes the text, which may contain a token.
    throw new EnvdError('invalid_argument', 'request body is not valid JSON', { cause: error });
  }
}
