import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect';
import { Filesystem } from '../../gen/filesystem/filesystem_pb.js';
import { Process } from '../../gen/process/process_pb.js';
import { Failure } from '../output/failure.ts';
import { type Endpoint, headersOf, neverWakingHeader } from './endpoint.ts';
import { failureOf } from './failures.ts';
import { HttpClient, type HttpRequest } from './http.ts';
import { RpcTransport } from './rpc-transport.ts';

/** A message may have this many bytes, which is enough for a listing of some hundred thousand entries. */
const MAX_MESSAGE = 256 * 1024 * 1024;
/** A unary call must be answered within this time, in milliseconds. */
const CALL_MS = 60_000;
/** A stream sends keepalives at this interval, in seconds. If it is silent for three intervals, it counts as lost. */
export const KEEPALIVE_S = 20;

/** What a command does when its sandbox is paused: it waits for a resume, ends, or resumes the sandbox by its calls. */
export type WhenPaused = 'wait' | 'end' | 'wake';

/** The calls of a daemon. Those of `processes` and `files` throw errors that `failure()` explains. */
export class Connection {
  readonly target: Endpoint;
  readonly whenPaused: WhenPaused;
  readonly processes: Client<typeof Process>;
  readonly files: Client<typeof Filesystem>;
  readonly http: HttpClient;

  constructor(target: Endpoint, whenPaused: WhenPaused = 'wait') {
    this.target = target;
    this.whenPaused = whenPaused;
    this.http = new HttpClient(target.url, target.name, headersOf(target));
    const transport = new RpcTransport(this.http, userHeader(target.user), MAX_MESSAGE);
    this.processes = createClient(Process, transport);
    this.files = createClient(Filesystem, transport);
  }

  /**
   * Has the calls from now on fail if the sandbox is paused meanwhile, instead of resuming it. A command does so when it has begun,
   * because a forgotten one would otherwise keep its sandbox alive.
   */
  keepAsleep(): void {
    if (this.whenPaused !== 'wake') this.http.addHeaders(neverWakingHeader(this.target));
  }

  /** The options of a unary call. */
  get unary(): { readonly timeoutMs: number } {
    return { timeoutMs: CALL_MS };
  }

  /** Makes a unary call of `processes` or `files`. Throws `Failure`. */
  async call<T>(make: (options: { readonly timeoutMs: number }) => Promise<T>): Promise<T> {
    try {
      return await make(this.unary);
    } catch (error) {
      throw await this.failure(error);
    }
  }

  /** Explains an error of a call. If a proxy or a gateway has answered, asks again for the text of its answer. */
  async failure(error: unknown): Promise<Failure> {
    if (error instanceof ConnectError && /^HTTP \d{3}$/.test(error.rawMessage)) {
      const told = await this.http.send({ path: '/health' }).catch((reason: unknown) => reason);
      if (told instanceof Failure) return told;
      if (error.code === Code.Unimplemented || error.code === Code.NotFound)
        return new Failure('failed', `${this.target.name} does not offer this operation`, { cause: error });
    }
    return failureOf(error, this.target.name);
  }

  /** Returns the query of a transfer, which names the user. RPCs name him in a header instead. */
  fileQuery(path: string): NonNullable<HttpRequest['query']> {
    return { path, username: this.target.user ?? undefined };
  }

  close(): void {
    this.http.close();
  }
}

/** Returns the header that names the user, as published clients send it: Basic authentication without a password. */
function userHeader(user: string | null): Record<string, string> {
  return user === null ? {} : { authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}` };
}
