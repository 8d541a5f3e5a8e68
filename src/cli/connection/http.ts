import { once } from 'node:events';
import http, { type IncomingMessage } from 'node:http';
import process from 'node:process';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Failure } from '../output/failure.ts';
import { failureOf, failureOfStatus } from './failures.ts';

/** An answer in JSON may have this many bytes. */
const MAX_JSON = 16 * 1024 * 1024;
/** The body of an error may have this many bytes. */
const MAX_ERROR = 64 * 1024;
/** Pieces of an answer are joined up to this size. */
const JOINED_BYTES = 1024;
/** A server may be silent for this time before and within an answer, in milliseconds. */
const SILENCE_MS = 60_000;

/** Describes a request to a server. */
export interface HttpRequest {
  readonly method?: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly headers?: Readonly<Record<string, string>>;
  /** An object is sent as JSON. */
  readonly body?: Readable | Buffer | object | undefined;
  /** With these statuses, in addition to 2xx, a response is an answer and not a failure. */
  readonly allow?: readonly number[];
  readonly signal?: AbortSignal | undefined;
  /** The server may be silent for this time, in milliseconds; default: 60 s; 0: for any time. */
  readonly silenceMs?: number;
}

/** Sends requests to one server over kept connections. Adds headers that every request needs. */
export class HttpClient {
  readonly #url: string;
  readonly #name: string;
  #headers: Readonly<Record<string, string>>;
  readonly agent: http.Agent;
  /** TLS is loaded for servers that need it. */
  readonly #protocol: Pick<typeof http, 'request' | 'Agent'>;

  /** @param name messages call the server by this name */
  constructor(url: string, name: string, headers: Readonly<Record<string, string>>) {
    this.#url = url;
    this.#name = name;
    this.#headers = headers;
    this.#protocol = url.startsWith('https:') ? process.getBuiltinModule('node:https') : http;
    this.agent = new this.#protocol.Agent({ keepAlive: true });
  }

  /** Adds headers to the requests from now on. */
  addHeaders(headers: Readonly<Record<string, string>>): void {
    this.#headers = { ...this.#headers, ...headers };
  }

  /** The headers of every request. */
  get headers(): Readonly<Record<string, string>> {
    return this.#headers;
  }

  /**
   * Resolves with the response when its head has arrived. The caller must read or destroy the body. Throws `Failure` for an
   * error status.
   */
  async send(request: HttpRequest): Promise<IncomingMessage> {
    const response = await this.exchange(request);
    const status = response.statusCode ?? 0;
    if ((status >= 200 && status < 300) || request.allow?.includes(status)) return response;
    const text = await readText(response, MAX_ERROR).catch(() => '');
    throw failureOfStatus(status, text, this.#name);
  }

  /** Resolves with the response when its head has arrived, whatever its status is. Throws `Failure` if there is none. */
  exchange(request: HttpRequest): Promise<IncomingMessage> {
    return this.#exchange(request).catch((error: unknown) => {
      throw failureOf(error, this.#name);
    });
  }

  /** Returns the JSON of an answer, or null if it has no body. Throws `Failure`. */
  async json(request: HttpRequest): Promise<unknown> {
    return (await this.answer(request)).body;
  }

  /** Returns the JSON of an answer with its headers. Throws `Failure`. */
  async answer(
    request: HttpRequest,
  ): Promise<{ readonly body: unknown; readonly headers: http.IncomingHttpHeaders }> {
    const response = await this.send(request);
    const text = await this.#read(response);
    try {
      return { body: text === '' ? null : JSON.parse(text), headers: response.headers };
    } catch {
      throw new Failure('failed', `${this.#name} answered ${request.path} with something that is not JSON`);
    }
  }

  /** Returns the text of an answer. Throws `Failure`. */
  async text(request: HttpRequest): Promise<string> {
    return this.#read(await this.send(request));
  }

  async #read(response: IncomingMessage): Promise<string> {
    return readText(response, MAX_JSON).catch((error: unknown) => {
      throw failureOf(error, this.#name);
    });
  }

  close(): void {
    this.agent.destroy();
  }

  async #exchange(request: HttpRequest): Promise<IncomingMessage> {
    const { method = 'GET', path, query = {}, headers = {}, body, signal, silenceMs = SILENCE_MS } = request;
    const url = new URL(this.#url + path);
    for (const [name, value] of Object.entries(query))
      if (value !== undefined) url.searchParams.set(name, value);
    const content = isStream(body) || Buffer.isBuffer(body) || body === undefined ? body : asJson(body);
    const sent = this.#protocol.request(url, {
      method,
      agent: this.agent,
      signal,
      timeout: silenceMs,
      headers: {
        ...this.#headers,
        ...(content !== body && { 'content-type': 'application/json' }),
        ...(Buffer.isBuffer(content) && { 'content-length': String(content.length) }),
        ...headers,
      },
    });
    sent.once('timeout', () => sent.destroy(new Failure('timeout', `${this.#name} does not answer`)));
    // An error after the head of the answer is an error of its body.
    sent.once('response', (response) => sent.on('error', (error) => response.destroy(error)));
    // After a switch of protocols, which nothing asks for, there is neither a response nor an error.
    const closed = once(sent, 'close').then(() => {
      throw new Failure('unreachable', `cannot reach ${this.#name}: the connection was closed`);
    });
    const answered = Promise.race([once(sent, 'response') as Promise<[IncomingMessage]>, closed]);
    if (!isStream(content)) sent.end(content);
    // A server may answer before it has read the whole request, as it does for a refusal.
    else
      await Promise.race([pipeline(content, sent).catch((error) => sourceError(content, error)), answered]);
    const [response] = await answered;
    return response;
  }
}

/** Throws an error of the source. The request itself reports an error of the connection. */
function sourceError(source: Readable, error: unknown): void {
  if (source.errored && source.errored === error) throw error;
}

function isStream(body: unknown): body is Readable {
  return typeof body === 'object' && body !== null && 'pipe' in body;
}

function asJson(body: object): Buffer {
  return Buffer.from(JSON.stringify(body));
}

async function readText(response: IncomingMessage, most: number): Promise<string> {
  return (await readBytes(response, most)).toString();
}

/** Reads a body to its end. Throws `tooLong` if it has more than `most` bytes, and what reading throws. */
export async function readBytes(
  body: AsyncIterable<Buffer>,
  most: number,
  tooLong = () => new Failure('failed', `the answer has more than ${most} bytes`),
): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of body) {
    length += piece.length;
    if (length > most) throw tooLong();
    addPiece(pieces, piece);
  }
  return Buffer.concat(pieces);
}

/** Adds a piece. Short ones are joined, because each takes some hundred bytes, and a server may send each byte alone. */
export function addPiece(pieces: Buffer[], piece: Buffer): void {
  const last = pieces.at(-1);
  if (last && last.length + piece.length <= JOINED_BYTES) pieces.splice(-1, 1, Buffer.concat([last, piece]));
  else pieces.push(piece);
}
