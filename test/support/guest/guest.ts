import { execFile } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { type Client, createClient, type Interceptor } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { Filesystem } from '../../../src/gen/filesystem/filesystem_pb.js';
import { Process } from '../../../src/gen/process/process_pb.js';
import { transcribe } from '../clients/clients.ts';

interface InitBody {
  readonly accessToken: string;
  readonly timestamp: Date;
  readonly [member: string]: unknown;
}

/** Without KVM, and on a busy machine, a daemon may take a minute to start, twice as long for an upgrade. */
const NEXT_LIMIT_MS = 600_000;

/** The daemon inside a guest, as the platform and its clients see it. */
export class Guest {
  readonly process: Client<typeof Process>;
  readonly filesystem: Client<typeof Filesystem>;
  readonly url: string;
  /** Null: none. */
  token: string | null;

  constructor(url: string, token: string | null = null) {
    this.url = url;
    this.token = token;
    const authorize: Interceptor = (next) => (request) => {
      if (this.token !== null) request.header.set('x-access-token', this.token);
      return next(request);
    };
    const transport = createConnectTransport({ baseUrl: url, httpVersion: '1.1', interceptors: [authorize] });
    this.process = createClient(Process, transport);
    this.filesystem = createClient(Filesystem, transport);
  }

  /** A call of the REST surface. */
  async call(method: string, route: string, body?: object | string): Promise<Response> {
    const type = typeof body === 'object' ? 'application/json' : 'application/octet-stream';
    const headers = {
      ...(body !== undefined && { 'content-type': type }),
      ...(this.token !== null && { 'x-access-token': this.token }),
    };
    const text = typeof body === 'object' ? JSON.stringify(body) : body;
    return fetch(`${this.url}${route}`, { method, headers, ...(text !== undefined && { body: text }) });
  }

  /** The platform's call after each start of the machine. Throws when the daemon refuses it. */
  async init({ accessToken, timestamp, ...more }: InitBody): Promise<Response> {
    const body = { accessToken, timestamp: timestamp.toISOString(), ...more };
    const response = await this.call('POST', '/init', body);
    if (response.status !== 204) throw new Error(`/init: ${response.status}: ${await response.text()}`);
    this.token = accessToken;
    return response;
  }

  /** Standard output of a shell command, without the last newline. Throws when it fails. */
  shell(command: string): Promise<string> {
    return this.#run(command, {});
  }

  /** The same in the daemon's own cgroup, which is never frozen. */
  system(command: string): Promise<string> {
    return this.#run(command, { tag: '_system' });
  }

  /** Standard output of commands of the platform, which run outside of the guest with the variables of docs/pausing.md. */
  async platform(commands: string): Promise<string> {
    const env = { ...process.env, ENVD: this.url, AUTH: `X-Access-Token: ${this.token ?? ''}` };
    return (await promisify(execFile)('bash', ['-ec', commands], { env })).stdout;
  }

  /** The pid of the daemon. */
  mainPid(): Promise<string> {
    return this.system('systemctl show --property=MainPID --value envd');
  }

  /** Runs what ends the daemon or replaces its program, in the guest if it is a command; resolves when the next one answers. */
  async next(command: string | (() => Promise<void>)): Promise<void> {
    const before = await this.#since();
    if (typeof command === 'function') await command();
    // In the background, as the daemon that starts it may be gone before it answers.
    else await this.system(`(sleep 0.1; ${command}) >/dev/null 2>&1 &`).catch(() => {});
    const end = performance.now() + NEXT_LIMIT_MS;
    for (let now = before; now === null || now === before; now = await this.#since()) {
      if (performance.now() > end) throw new Error(`no other daemon answers after '${command}'`);
      await delay(100);
    }
  }

  /** When the daemon was started; null: it does not answer. */
  #since(): Promise<string | null> {
    return this.call('GET', '/health?verbose').then(
      async (answer) => (answer.ok ? ((await answer.json()) as { since: string }).since : null),
      () => null,
    );
  }

  async #run(command: string, how: { tag?: string }): Promise<string> {
    const request = { process: { cmd: '/bin/sh', args: ['-c', command] }, stdin: false, ...how };
    const { stdout, stderr, end } = await transcribe(this.process.start(request));
    if (end?.exitCode !== 0) throw new Error(`'${command}': ${end?.status}: ${stdout}${stderr}`);
    return stdout.toString().trimEnd();
  }
}
