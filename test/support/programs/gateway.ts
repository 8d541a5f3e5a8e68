import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endWithTests } from './end-with-tests.ts';
import { type End, endOf, type LogLine, portWhenReady } from './log-lines.ts';
import { gatewayCommand } from './programs.ts';

const { PATH, NODE_COMPILE_CACHE } = process.env;

export const API_KEY = 'the-key-of-the-platform';

export interface GatewayOptions {
  /** Directory of its files; default: a new one, removed with the gateway. */
  readonly directory?: string;
  readonly port?: number;
  readonly args?: readonly string[];
  /** False: without leave to connect to this machine. */
  readonly anywhere?: boolean;
  /** Flags of Node. */
  readonly flags?: readonly string[];
  /** Default: the gateway that is tested (programs.ts). */
  readonly command?: readonly [string];
}

/** The real gateway, in a process of its own on a loopback port. */
export class TestGateway implements AsyncDisposable {
  readonly log: LogLine[] = [];
  readonly exited: Promise<End>;
  readonly directory: string;
  port = 0;
  readonly #child: ChildProcess;
  readonly #ownDirectory: boolean;

  constructor(child: ChildProcess, directory: string, ownDirectory: boolean) {
    this.#child = child;
    this.directory = directory;
    this.#ownDirectory = ownDirectory;
    this.exited = endOf(child);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    return this.#child.pid ?? -1;
  }

  async ready(): Promise<this> {
    this.port = await portWhenReady('gateway', this.#child, this.log, this.exited);
    return this;
  }

  /** A platform operation such as `POST /sandboxes`, with the key unless `headers` has another. */
  async call(
    operation: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const [method = '', path = ''] = operation.split(' ');
    const response = await fetch(`${this.url}${path}`, {
      method,
      headers: {
        'x-api-key': API_KEY,
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: text === '' ? null : parse(text),
    };
  }

  /** Registers a sandbox on this machine. */
  async register(
    sandboxID: string,
    port: number,
    more: Readonly<Record<string, unknown>> = {},
  ): Promise<Answer> {
    const answer = await this.call('POST /sandboxes', { sandboxID, address: '127.0.0.1', port, ...more });
    if (answer.status !== 201) throw new Error(`register: ${answer.status} ${answer.text}`);
    return answer;
  }

  kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<unknown> {
    this.#child.kill(signal);
    return this.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill('SIGTERM');
    if (this.#ownDirectory) rmSync(this.directory, { recursive: true, force: true });
  }
}

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: what a server answers is looked at member by member
  readonly body: any;
}

/** Starts a gateway and waits until it listens. */
export async function startGateway(options: GatewayOptions = {}): Promise<TestGateway> {
  const directory = options.directory ?? mkdtempSync(join(tmpdir(), 'envd-gateway-'));
  const args = [
    '--host=127.0.0.1',
    `--port=${options.port ?? 0}`,
    `--api-key=${API_KEY}`,
    '--drain=0',
    // The sandboxes of tests are on this machine.
    ...(options.anywhere === false ? [] : ['--allow-addresses=127.0.0.0/8,::1']),
    `--hook-directory=${directory}/hooks`,
    ...(options.args?.some((arg) => arg.startsWith('--redis'))
      ? []
      : [`--registry=${directory}/registry.db`]),
    ...(options.args ?? []),
  ];
  const [program, ...before] = options.command ?? gatewayCommand(options.flags);
  const child = spawn(program, [...before, ...args], {
    env: { PATH, NODE_COMPILE_CACHE, TMPDIR: directory },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  endWithTests(child);
  return new TestGateway(child, directory, options.directory === undefined).ready();
}

/** The headers that name a sandbox. */
export function toSandbox(id: string, port?: number): Record<string, string> {
  return { 'svc-sandbox-id': id, ...(port !== undefined && { 'svc-sandbox-port': String(port) }) };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
