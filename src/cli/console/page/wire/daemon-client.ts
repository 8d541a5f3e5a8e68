import { CallError, callErrorOf, errorOfText } from './call-error.ts';
import type { ConsoleClient, Query } from './console-client.ts';
import { EnvelopeReader, enveloped } from './envelopes.ts';

const CALL_MS = 60_000;
/** How often a stream says that it lives, in seconds; one that is silent for three times as long is lost. */
const KEEPALIVE_S = 20;
const MAX_LINE = 100_000;

/** How a stream is opened. */
export interface StreamCallOptions {
  readonly signal: AbortSignal;
  /** The user of the call; default: that of the console. */
  readonly user?: string;
}

/** How a file is sent. */
export interface FileUploadOptions {
  readonly signal: AbortSignal;
  /** An `ETag` that the file must have. */
  readonly ifMatch?: string;
  onProgress?(bytes: number): void;
}

/** The calls of one daemon, which the console passes on. All of them throw `CallError`. */
export class DaemonClient {
  readonly console: ConsoleClient;
  readonly sandbox: string | null;

  constructor(client: ConsoleClient, sandbox: string | null) {
    this.console = client;
    this.sandbox = sandbox;
  }

  /** The answer to an RPC such as `process.Process/List`. */
  async unary<T>(method: string, message: object, { timeoutMs = CALL_MS } = {}): Promise<T> {
    const signal = timeoutMs === 0 ? null : AbortSignal.timeout(timeoutMs);
    const response = await this.console.send(`/daemon/${method}`, {
      method: 'POST',
      headers: { ...this.#headers(), 'content-type': 'application/json', 'connect-protocol-version': '1' },
      body: JSON.stringify(message),
      signal,
    });
    return (await response.json().catch((error: unknown) => {
      throw callErrorOf(error);
    })) as T;
  }

  /** The messages of a streaming RPC, as fast as they are read. */
  async *stream<T>(method: string, message: object, options: StreamCallOptions): AsyncGenerator<T> {
    const origin = this.console.lanes.take();
    const watchdog = new AbortController();
    const signal = AbortSignal.any([options.signal, watchdog.signal]);
    const timer = setTimeout(() => watchdog.abort(), KEEPALIVE_S * 3000);
    try {
      const response = await this.console.send(`${origin}/daemon/${method}`, {
        method: 'POST',
        headers: {
          ...this.#headers(options.user),
          ...{ 'content-type': 'application/connect+json', 'connect-protocol-version': '1' },
          'keepalive-ping-interval': String(KEEPALIVE_S),
        },
        body: enveloped(message),
        signal,
      });
      clearTimeout(timer);
      yield* messagesOf<T>(response, () => watchdog.abort());
    } catch (error) {
      throw watchdog.signal.aborted
        ? new CallError('network', 'the daemon does not answer')
        : callErrorOf(error);
    } finally {
      clearTimeout(timer);
      // A reader that has left the loop leaves the stream, too.
      watchdog.abort();
      this.console.lanes.giveBack(origin);
    }
  }

  /** The lines of a stream that lasts, as they arrive together. */
  async *lines(path: string, signal: AbortSignal): AsyncGenerator<string[]> {
    const origin = this.console.lanes.take();
    try {
      const response = await this.console.send(`${origin}/daemon${path}`, {
        headers: this.#headers(),
        signal,
      });
      const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done = true, value = '' } = (await reader?.read()) ?? {};
        if (done) return;
        const lines = (rest + value).split('\n');
        rest = lines.pop() ?? '';
        if (rest.length > MAX_LINE)
          throw new CallError('internal', 'the daemon sent a line that is too long');
        yield lines.filter((line) => line !== '');
      }
    } finally {
      this.console.lanes.giveBack(origin);
    }
  }

  /** The answer to a GET or HEAD. */
  async get(path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
    const signal = init.signal ?? AbortSignal.timeout(CALL_MS);
    const headers = { ...this.#headers(), ...(init.headers as Record<string, string> | undefined) };
    return this.console.send(this.#url(path, query), { ...init, headers, signal });
  }

  /** The JSON of a GET; null when there is none. */
  async getJson<T>(path: string, query: Query = {}): Promise<T | null> {
    const response = await this.get(path, query, {
      headers: { accept: 'application/json' },
      signal: AbortSignal.timeout(10_000),
    });
    const text = await response.text();
    return text === '' ? null : (JSON.parse(text) as T);
  }

  /** Writes a file. By XMLHttpRequest, because `fetch` tells nothing of the progress of an upload. */
  async upload(
    path: string,
    content: Blob,
    { signal, ifMatch, onProgress }: FileUploadOptions,
  ): Promise<void> {
    const request = new XMLHttpRequest();
    request.open('POST', this.#url('/files', { path }));
    const headers = {
      ...this.console.sessionHeader,
      ...this.#headers(),
      'content-type': 'application/octet-stream',
      ...(ifMatch !== undefined && { 'if-match': ifMatch }),
    };
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    const abort = () => request.abort();
    signal.addEventListener('abort', abort);
    try {
      await new Promise<void>((resolve, reject) => {
        request.upload.onprogress = ({ loaded }) => onProgress?.(loaded);
        request.onload = () =>
          request.status < 300 ? resolve() : reject(errorOfText(request.responseText, request.status));
        request.onerror = () => reject(new CallError('network', 'the connection was lost'));
        request.onabort = () => reject(new CallError('canceled', 'the upload was stopped'));
        request.send(content);
      });
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }

  /** Lets the browser save a file, or a directory as an archive. */
  async download(path: string, format: string | null): Promise<void> {
    const order = { path, format, sandbox: this.sandbox };
    const { ticket } = (await this.console.json('POST', '/tickets', order)) as { ticket: string };
    const link = document.createElement('a');
    link.href = `/download/${ticket}`;
    link.download = '';
    link.click();
  }

  #url(path: string, query: Query): string {
    const told = Object.entries(query).filter((entry): entry is [string, string] => entry[1] !== undefined);
    return `/daemon${path}${told.length === 0 ? '' : `?${new URLSearchParams(told)}`}`;
  }

  #headers(user?: string): Record<string, string> {
    return {
      ...(this.sandbox !== null && { 'x-console-sandbox': encodeURIComponent(this.sandbox) }),
      ...(user !== undefined && user !== '' && { 'x-console-user': encodeURIComponent(user) }),
    };
  }
}

async function* messagesOf<T>(response: Response, onSilence: () => void): AsyncGenerator<T> {
  const reader = response.body?.getReader();
  const envelopes = new EnvelopeReader();
  for (;;) {
    // Only while it is waited for: a reader may take any time.
    const timer = setTimeout(onSilence, KEEPALIVE_S * 3000);
    const piece = await reader?.read().finally(() => clearTimeout(timer));
    if (!piece || piece.done) throw new CallError('network', 'the connection was lost');
    for (const { isEnd, text } of envelopes.read(piece.value)) {
      const message = JSON.parse(text);
      if (!isEnd) yield message as T;
      else if (message.error) throw errorOfText(JSON.stringify(message.error), 200);
      else return;
    }
  }
}
