import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import {
  EnvdError,
  ERROR_HEADERS,
  errorBody,
  HttpError,
  httpStatusOf,
  messageOf,
} from '../../base/errors.ts';
import { hostFault } from '../../base/http/client-errors.ts';
import { Connections, expectsContinue } from '../../base/http/connections.ts';
import { monotonicMs } from '../../base/monotonic.ts';
import { Semaphore } from '../../base/semaphore.ts';
import type { Machines } from '../machines/machines.ts';
import { answerHook, type HookBody, readHookBody } from './requests.ts';
import { signatureFault } from './verify.ts';

/** A request of a hook has at most this many bytes, and all that are being read together at most as many as this. */
const BODY_LIMIT = 256 * 1024;
const BODIES_LIMIT = 32 * 1024 ** 2;
const MOST_CONNECTIONS = 1024;
/** A request must be complete within this time, in ms. */
const REQUEST_MS = 20_000;

/** The hooks that were answered, by their event, and how long that took in all. */
export interface HookTally {
  readonly ok: Map<string, number>;
  readonly failed: Map<string, number>;
  seconds: number;
}

export interface HookServerParts {
  readonly machines: Machines;
  readonly secrets: readonly Buffer[];
  /** Returns why the program cannot work now, or null. */
  readonly fault: () => string | null;
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
  readonly logger: Logger;
}

interface Answer {
  readonly status: number;
  readonly type: string;
  readonly text: string;
}

/** Answers the hooks of the gateway, `GET /health` and `GET /metrics`. */
export class HookServer {
  readonly server: Server;
  readonly tally: HookTally = { ok: new Map(), failed: new Map(), seconds: 0 };
  readonly #parts: HookServerParts;
  readonly #bodies = new Semaphore(BODIES_LIMIT);
  /** Hooks that are being answered. */
  readonly #running = new Set<Promise<unknown>>();

  constructor(parts: HookServerParts) {
    this.#parts = parts;
    this.server = createServer({
      requestTimeout: REQUEST_MS,
      headersTimeout: REQUEST_MS,
      requireHostHeader: false,
    });
    new Connections(MOST_CONNECTIONS).attach(this.server, (request, response) => {
      const running = this.#serve(request, response);
      this.#running.add(running);
      void running.finally(() => this.#running.delete(running));
    });
  }

  /** Stops listening, and waits for the hooks that are being answered. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    this.server.closeIdleConnections();
    await Promise.all(this.#running);
    this.server.closeIdleConnections();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    request.on('error', () => {});
    response.on('error', () => {});
    let answer: Answer;
    try {
      answer = await this.#answer(request, response);
    } catch (error) {
      const status = httpStatusOf(error);
      answer = { status, type: ERROR_HEADERS['content-type'], text: errorBody(status, messageOf(error)) };
    }
    const { status, type, text } = answer;
    // What was not read of a refused body would be taken for the next request.
    if (!request.complete) response.shouldKeepAlive = false;
    response
      .writeHead(status, {
        ...ERROR_HEADERS,
        'content-type': type,
        'content-length': Buffer.byteLength(text),
      })
      .end(text);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<Answer> {
    const fault = hostFault(request);
    if (fault !== null) throw new EnvdError('invalid_argument', fault);
    const operation = `${request.method} ${request.url?.split('?', 1)[0]}`;
    if (operation === 'GET /health') return this.#health();
    if (operation === 'GET /metrics') {
      const { contentType, text } = await this.#parts.metrics();
      return { status: 200, type: contentType, text };
    }
    if (operation !== 'POST /hooks')
      throw new EnvdError('not_found', `there is no '${operation}': hooks are at POST /hooks`);
    const body = await this.#body(request, response);
    const unsigned = signatureFault(request.headers, body, this.#parts.secrets);
    if (unsigned !== null) throw new EnvdError('unauthenticated', `unauthorized: ${unsigned}`);
    return this.#hook(readHookBody(body));
  }

  #health(): Answer {
    const fault = this.#parts.fault();
    if (fault !== null) throw new EnvdError('unavailable', fault);
    return { status: 200, type: 'text/plain', text: 'ok\n' };
  }

  async #body(request: IncomingMessage, response: ServerResponse): Promise<string> {
    const length = Number(request.headers['content-length'] ?? BODY_LIMIT);
    if (!(length <= BODY_LIMIT)) throw new HttpError(413, `a request has at most ${BODY_LIMIT} bytes`);
    if (!this.#bodies.takeUntilClosed(response, length))
      throw new EnvdError('resource_exhausted', 'too many requests are being read: try again later');
    if (expectsContinue(request)) response.writeContinue();
    const pieces: Buffer[] = [];
    let bytes = 0;
    for await (const piece of request as AsyncIterable<Buffer>) {
      bytes += piece.length;
      if (bytes > BODY_LIMIT) throw new HttpError(413, `a request has at most ${BODY_LIMIT} bytes`);
      pieces.push(piece);
    }
    return Buffer.concat(pieces).toString();
  }

  async #hook(body: HookBody): Promise<Answer> {
    const { event, sandboxID } = body;
    const started = monotonicMs();
    const { logger } = this.#parts;
    const told = () => ({ event, sandboxID, ms: Math.round(monotonicMs() - started) });
    try {
      const answer = await answerHook(this.#parts.machines, body);
      this.#count('ok', event, started);
      logger.info(told(), 'hook');
      if (typeof answer === 'string') return { status: 200, type: 'text/plain', text: answer };
      return { status: 200, type: 'application/json', text: JSON.stringify(answer) };
    } catch (error) {
      this.#count('failed', event, started);
      logger.warn({ ...told(), err: error }, 'a hook has failed');
      // The gateway tells the client a refusal, and only logs a failure.
      if (event !== 'create' || !(error instanceof HttpError)) throw error;
      const refusal = { error: messageOf(error), code: error.statusCode };
      return { status: 200, type: 'application/json', text: JSON.stringify(refusal) };
    }
  }

  #count(result: 'ok' | 'failed', event: string, started: number): void {
    const counts = this.tally[result];
    counts.set(event, (counts.get(event) ?? 0) + 1);
    this.tally.seconds += (monotonicMs() - started) / 1000;
  }
}
