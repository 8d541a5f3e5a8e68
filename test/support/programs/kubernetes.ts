import { createHmac, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { composeKubernetes, type HookProgram } from '../../../src/kubernetes/compose.ts';
import { readKubernetesConfig } from '../../../src/kubernetes/config/config.ts';
import type { LogLine } from './log-lines.ts';

const KEY = Buffer.alloc(32, 7);
export const HOOK_SECRET = `whsec_${KEY.toString('base64')}`;

/** Returns the headers of Standard Webhooks for a body. */
export function signed(body: string, key = KEY, seconds = Math.floor(Date.now() / 1000)) {
  const id = randomUUID();
  const signature = createHmac('sha256', key).update(`${id}.${seconds}.${body}`).digest('base64');
  return { 'webhook-id': id, 'webhook-timestamp': String(seconds), 'webhook-signature': `v1,${signature}` };
}

/** Writes a file that says how the API server at `url` is reached. */
function kubeconfigOf(url: string, directory: string): string {
  const file = join(directory, 'kubeconfig');
  const name = 'test';
  const config = {
    ...{ apiVersion: 'v1', kind: 'Config', 'current-context': name },
    // The client refuses a server without TLS otherwise.
    clusters: [{ name, cluster: { server: url, 'insecure-skip-tls-verify': true } }],
    users: [{ name, user: {} }],
    contexts: [{ name, context: { cluster: name, user: name } }],
  };
  writeFileSync(file, JSON.stringify(config));
  return file;
}

/** The program in this process, because its client takes seconds to load; it listens on a loopback port. */
export class TestKubernetes implements AsyncDisposable {
  readonly log: LogLine[] = [];
  readonly #directory = mkdtempSync(join(tmpdir(), 'envd-kubernetes-'));
  readonly #hooks: HookProgram;

  constructor(url: string, args: readonly string[]) {
    const flags = [
      `--hook-secret=${HOOK_SECRET}`,
      '--daemon-image=registry.example/envd',
      `--kubeconfig=${kubeconfigOf(url, this.#directory)}`,
    ];
    const read = readKubernetesConfig([...flags, ...args], {});
    if (!('run' in read)) throw new Error(read.output);
    const logger = pino({}, { write: (line: string) => this.log.push(JSON.parse(line)) });
    this.#hooks = composeKubernetes(read.run, logger);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#hooks.server.address() as AddressInfo).port}`;
  }

  async start(): Promise<this> {
    await once(this.#hooks.server.listen(0, '127.0.0.1'), 'listening');
    await this.#hooks.start();
    return this;
  }

  /** Calls a hook as the gateway does. */
  async hook(request: Readonly<Record<string, unknown>>) {
    const body = JSON.stringify(request);
    const response = await fetch(`${this.url}/hooks`, { method: 'POST', body, headers: signed(body) });
    return { status: response.status, text: await response.text() };
  }

  /** Makes a Pod for a sandbox. */
  async create(sandboxID: string, more: Readonly<Record<string, unknown>> = {}) {
    const { status, text } = await this.hook({ event: 'create', sandboxID, templateID: 'base', ...more });
    return { status, body: JSON.parse(text) };
  }

  /** A value of the page of metrics, with its labels. */
  async metric(name: string): Promise<number> {
    const page = await (await fetch(`${this.url}/metrics`)).text();
    const line = page.split('\n').find((each) => each.startsWith(`envd_kubernetes_${name} `));
    return Number(line?.split(' ')[1] ?? Number.NaN);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#hooks.stop();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}
