import type { IncomingMessage, ServerResponse } from 'node:http';
import { EnvdError, HttpError } from '../../base/errors.ts';
import { type JsonLimits, JsonScanner } from './json-scanner.ts';
import { endUnlessComplete } from './requests.ts';

/** How many bodies of a kind may be on their way at a time. */
const OPEN_LIMIT = 16;
/** How long a body may be on its way, in milliseconds. */
const TIME_LIMIT_MS = 5000;
const LINGER = { milliseconds: 1000, bytes: 16 * 1024 * 1024 };

/**
 * Reads JSON bodies of callers that need not be known yet: bounded in size, number, time and what there is to parse.
 * One body too many costs the one that has been on its way for longest its place, not a client that sends at once.
 */
export class JsonBodies {
  readonly #limits: JsonLimits;
  /** What ends each body that is on its way, the oldest first. */
  readonly #open = new Set<(reason: HttpError) => void>();

  constructor(limits: JsonLimits) {
    this.#limits = limits;
  }

  /**
   * The value of the body of `request`, whatever its type says; undefined when it is empty. Throws `invalid_argument`
   * when it is not JSON, errors with the status 413, 408 or 503 when a limit is reached, and `aborted` when the client
   * goes away.
   */
  async read(request: IncomingMessage, response: ServerResponse): Promise<unknown> {
    try {
      return parse(await this.#receive(request));
    } finally {
      if (!request.complete) endUnlessComplete(request, response, LINGER);
    }
  }

  #receive(request: IncomingMessage): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
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
    const late = new HttpError(408, `request body took longer than ${TIME_LIMIT_MS / 1000} s`);
    const timer = setTimeout(() => refuse(late), TIME_LIMIT_MS);
    request.on('data', take);
    request.once('end', () => resolve(text.toString()));
    request.once('close', () => reject(new EnvdError('aborted', 'request broke off before its end')));
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

/** A text that arrives in pieces; however small those are, it takes about its own size. */
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
  if (text.trim() === '') return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    // V8's own message quotes the text, and with it a token.
    throw new EnvdError('invalid_argument', 'request body is not valid JSON', { cause: error });
  }
}
