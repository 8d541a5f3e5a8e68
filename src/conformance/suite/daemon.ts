import { strict as assert } from 'node:assert';
import type { OutgoingHttpHeaders } from 'node:http';
import {
  type CallOptions,
  type Client,
  Code,
  ConnectError,
  createClient,
  type Interceptor,
} from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { Filesystem } from '../../gen/filesystem/filesystem_pb.js';
import { Process, Signal } from '../../gen/process/process_pb.js';
import { NotRun } from './not-run.ts';
import type { GuestFacts, Run } from './run.ts';
import { Running, type StartInit } from './running.ts';
import { byPid } from './transcript.ts';
import { type Answer, CaseConnections, MOST_BYTES, type Sent } from './wire.ts';

export type MessageCodec = 'JSON' | 'binary';
export const CODECS: readonly MessageCodec[] = ['JSON', 'binary'];

type Query = Readonly<Record<string, string>>;

/** A request of the REST surface. */
export interface RestCall {
  readonly query?: Query;
  readonly headers?: OutgoingHttpHeaders;
  readonly body?: string | Uint8Array;
}

export const RAW = { 'content-type': 'application/octet-stream' };
export const JSON_BODY = { 'content-type': 'application/json' };

/** The header by which a call names its user. */
export const as = (user: string) => ({
  authorization: `Basic ${Buffer.from(`${user}:`).toString('base64')}`,
});

/** The daemon as one case sees it: connections, processes and a directory of its own, all of which end with the case. */
export class TestedDaemon implements AsyncDisposable {
  readonly run: Run;
  /** A directory of the guest which the first upload makes. */
  readonly directory: string;
  readonly connections: CaseConnections;
  readonly process: Client<typeof Process>;
  readonly filesystem: Client<typeof Filesystem>;
  readonly #guest: GuestFacts | null;
  readonly #running: Running[] = [];
  /** Those that nobody has answered yet. */
  readonly #starting = new Set<Promise<Running>>();
  readonly #ends: (() => Promise<unknown>)[] = [];

  constructor(run: Run, guest: GuestFacts | null, name: string) {
    this.run = run;
    this.#guest = guest;
    this.directory = `${run.directory}/${name}`;
    this.connections = new CaseConnections(run.url);
    ({ process: this.process, filesystem: this.filesystem } = this.clients('JSON'));
  }

  get guest(): GuestFacts {
    assert(this.#guest, 'nothing is known of the guest yet');
    return this.#guest;
  }

  /** Another user of the guest; a case that asks needs one. */
  get other(): NonNullable<GuestFacts['other']> {
    if (!this.guest.other) throw new NotRun('the guest has no other user');
    return this.guest.other;
  }

  clients(codec: MessageCodec) {
    const authorize: Interceptor = (next) => (request) => {
      this.connections.requireOpen();
      if (this.run.token !== null) request.header.set('x-access-token', this.run.token);
      return next(request);
    };
    const transport = createConnectTransport({
      baseUrl: String(this.run.url),
      httpVersion: '1.1',
      useBinaryFormat: codec === 'binary',
      interceptors: [authorize],
      nodeOptions: { agent: this.connections.agent },
      readMaxBytes: MOST_BYTES,
    });
    return { process: createClient(Process, transport), filesystem: createClient(Filesystem, transport) };
  }

  /** A path in the directory of the case. */
  at(...names: readonly string[]): string {
    return [this.directory, ...names].join('/');
  }

  /** At the end of the case, also of a failed one; errors are ignored. */
  atEnd(work: () => Promise<unknown>): void {
    this.#ends.push(work);
  }

  /** A request as it is, without the token. */
  send(sent: Sent): Promise<Answer> {
    return this.connections.exchange(sent);
  }

  /** A request with the token. */
  rest(method: string, path: string, { query, headers, body }: RestCall = {}): Promise<Answer> {
    const token = this.run.token === null ? {} : { 'x-access-token': this.run.token };
    const search = query ? `?${new URLSearchParams(query)}` : '';
    return this.send({
      ...{ method, path: path + search, headers: { ...token, ...headers } },
      ...(body !== undefined && { body }),
    });
  }

  /** A raw upload; throws unless it is answered with 200. Returns what the answer tells of the file. */
  async upload(
    path: string,
    content: string | Uint8Array = '',
    headers: OutgoingHttpHeaders = {},
    query: Query = {},
  ) {
    const call = { query: { path, ...query }, headers: { ...RAW, ...headers }, body: content };
    const [entry] = jsonOf<Record<string, unknown>[]>(await this.rest('POST', '/files', call), 200);
    return entry ?? {};
  }

  /** Throws unless it is answered with 200. */
  async download(path: string): Promise<Buffer> {
    const { status, body } = await this.rest('GET', '/files', { query: { path } });
    assert.equal(status, 200, `a download of '${path}' is answered with ${status}: ${body}`);
    return body;
  }

  /** The directory of the case, or one below it, made as the default user. */
  async makeDir(...names: readonly string[]): Promise<string> {
    const path = this.at(...names);
    await this.filesystem.makeDir({ path }).catch((error: unknown) => {
      if (ConnectError.from(error).code !== Code.AlreadyExists) throw error;
    });
    return path;
  }

  /** Names in a directory. */
  async names(path = this.directory, depth = 1): Promise<string[]> {
    return (await this.filesystem.listDir({ path, depth })).entries.map(({ name }) => name);
  }

  async stat(path: string) {
    const { entry } = await this.filesystem.stat({ path });
    assert(entry, 'the answer has an entry');
    return entry;
  }

  /** Does many things at once, as many at a time as the run may open connections. */
  async atOnce<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
    const results: R[] = [];
    for (let at = 0; at < items.length; at += this.run.connections)
      results.push(...(await Promise.all(items.slice(at, at + this.run.connections).map(work))));
    return results;
  }

  /** Starts a process and waits for its first event. What of it still runs at the end of the case is killed. */
  async start(request: StartInit, options: CallOptions = {}, codec: MessageCodec = 'JSON'): Promise<Running> {
    const tag = request.tag ?? this.run.tag;
    const stream = this.clients(codec).process.start({ ...request, tag }, options);
    const starting = Running.of(stream);
    this.#starting.add(starting);
    const running = await starting.finally(() => this.#starting.delete(starting));
    this.#running.push(running);
    return running;
  }

  /** Standard output of a shell script without the last newline. Throws unless it exits with 0. */
  async shell(script: string, headers: Record<string, string> = {}): Promise<string> {
    const process = { cmd: '/bin/sh', args: ['-c', script], cwd: '/' };
    const { stdout, stderr, end } = await (await this.start({ process, stdin: false }, { headers })).ended;
    assert.equal(end?.exitCode, 0, `'${script}': ${end?.status}: ${stdout}${stderr}`);
    return String(stdout).replace(/\n$/, '');
  }

  /** A case that was left goes on by itself, but makes no calls from now on. */
  async [Symbol.asyncDispose](): Promise<void> {
    const starting = [...this.#starting];
    const kill = (running: Running) =>
      this.process.sendSignal({ process: byPid(running.pid), signal: Signal.SIGKILL }).catch(() => {});
    await Promise.all(this.#running.filter(({ hasEnded }) => !hasEnded).map(kill));
    for (const end of this.#ends.reverse()) await end().catch(() => {});
    // A case may be left in the middle of a start.
    await Promise.allSettled(starting.map(async (start) => kill(await start)));
    this.connections[Symbol.dispose]();
  }
}

/** The JSON of an answer. Throws when its status is another one. */
export function jsonOf<T = Record<string, unknown>>({ status, body }: Answer, wanted: number): T {
  assert.equal(status, wanted, `the answer is ${status}: ${body}`);
  return JSON.parse(String(body)) as T;
}

/** Checks that a REST call was refused, in the form of all errors. A text: the whole message; a pattern: a part. */
export function refusedRest(answer: Answer, status: number, message: string | RegExp = /./): void {
  const error = jsonOf<{ code: unknown; message: string }>(answer, status);
  assert.equal(error.code, status);
  matches(error.message, message);
  assert.equal(answer.headers['content-type'], 'application/json; charset=utf-8');
  assert.equal(answer.headers['x-content-type-options'], 'nosniff');
}

/** Checks that an RPC fails so. */
export async function refused(
  call: Promise<unknown>,
  codes: Code | readonly Code[],
  message: string | RegExp = /./,
): Promise<void> {
  const error = await call.then(
    () => assert.fail('the call did not fail'),
    (reason: unknown) => ConnectError.from(reason),
  );
  const wanted = [codes].flat();
  const names = wanted.map((code) => Code[code]).join(' or ');
  assert(wanted.includes(error.code), `wanted ${names}, got ${Code[error.code]}: ${error.rawMessage}`);
  matches(error.rawMessage, message);
}

function matches(text: string, wanted: string | RegExp): void {
  if (typeof wanted === 'string') assert.equal(text, wanted);
  else assert.match(text, wanted);
}

/** Polls until `look` returns true; the limit is that of the case. */
export async function until(look: () => Promise<boolean>): Promise<void> {
  while (!(await look())) await new Promise((resolve) => setTimeout(resolve, 20));
}
