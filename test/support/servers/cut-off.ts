import { once } from 'node:events';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** When a way is cut: before the request is done, or after that, before anybody has the answer. */
export type Moment = 'before' | 'after';

/**
 * The way of one program to an HTTP server, which can be cut at any request: for the server that is the same as if the program were killed
 * there. Watches, which last, do not count.
 */
export class CutOff implements AsyncDisposable {
  readonly #server = createServer((asked, response) => void this.#pass(asked, response));
  readonly #target: string;
  #cut: { readonly step: string; readonly moment: Moment } | null = null;
  /** True when nothing comes through any more. */
  isCut = false;
  #isClosing = false;
  readonly #watches = new Map<IncomingMessage, ServerResponse>();

  constructor(target: string) {
    this.#target = target;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async start(): Promise<this> {
    await once(this.#server.listen(0, '127.0.0.1'), 'listening');
    return this;
  }

  /** Cuts the way at the next request of this kind, such as `POST pods`. */
  cutAt(step: string, moment: Moment): void {
    this.#cut = { step, moment };
  }

  /** Keeps the news of watches back, as a slow way does, until `releaseWatches`. */
  holdWatches(): void {
    for (const answer of this.#watches.keys()) answer.unpipe();
  }

  releaseWatches(): void {
    for (const [answer, response] of this.#watches) answer.pipe(response);
  }

  #pass(asked: IncomingMessage, response: ServerResponse): void {
    const { method = 'GET', url = '/', headers } = asked;
    if (this.#isClosing) {
      response.destroy();
      return;
    }
    const isLast = this.#isLast(`${method} ${url}`);
    this.#isClosing = isLast;
    if (isLast && this.#cut?.moment === 'before') {
      this.#end();
      return;
    }
    const passed = request(`${this.#target}${url}`, { method, headers }, (answer) => {
      answer.on('error', () => {});
      if (!isLast) {
        response.writeHead(answer.statusCode ?? 500, answer.headers).flushHeaders();
        answer.pipe(response);
        if (!isWatch(url)) return;
        this.#watches.set(answer, response);
        response.once('close', () => this.#watches.delete(answer));
      } else answer.once('end', () => this.#end()).resume();
    });
    passed.on('error', () => response.destroy());
    response.once('close', () => passed.destroy());
    asked.pipe(passed);
  }

  #isLast(told: string): boolean {
    if (isWatch(told)) return false;
    return told.replace(/\/\S*\/namespaces\/\w+\/(\w+)\S*/, '$1') === this.#cut?.step;
  }

  #end(): void {
    this.isCut = true;
    this.#server.closeAllConnections();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }
}

function isWatch(url: string): boolean {
  return /[?&]watch=/.test(url);
}
