// The calls to the daemon, and their answers in the model's terms.

import { filePart, MULTIPART, multipartBody, RAW } from '../clients/files-client.ts';
import type { TestDaemon } from '../programs/daemon.ts';
import type { OperationSpec } from './arbitraries.ts';
import type { Code, Described } from './operations.ts';

export interface Answer {
  readonly code: string;
  readonly message: string;
  readonly content?: string;
  readonly entries?: readonly Described[];
}

const CODES: Readonly<Record<number, Code | 'aborted' | 'internal'>> = {
  200: 'ok',
  400: 'invalid_argument',
  403: 'permission_denied',
  404: 'not_found',
  412: 'failed_precondition',
  500: 'internal',
};

type Metadata = OperationSpec['metadata'];

/** What is sent. */
export const CONTENT = 'of the client';

export class Calls {
  readonly #daemon: TestDaemon;
  readonly #user: string;

  constructor(daemon: TestDaemon, user: string) {
    this.#daemon = daemon;
    this.#user = user;
  }

  async #rpc(method: string, body: object): Promise<[Answer, Record<string, unknown>]> {
    const response = await fetch(`${this.#daemon.url}/filesystem.Filesystem/${method}`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Basic ${Buffer.from(`${this.#user}:`).toString('base64')}`,
      },
      body: JSON.stringify(body),
    });
    const answer = (await response.json()) as Record<string, unknown>;
    return [{ code: String(answer.code ?? 'ok'), message: String(answer.message ?? '') }, answer];
  }

  async #rest(path: string, init: RequestInit): Promise<Answer> {
    const response = await fetch(`${this.#daemon.url}${path}`, init);
    const content = await response.text();
    return { code: CODES[response.status] ?? String(response.status), message: content, content };
  }

  #upload(path: string, type: Readonly<Record<string, string>>, metadata: Metadata, body: string | Buffer) {
    const headers = new Headers(type);
    for (const [key, value] of Object.entries(metadata)) headers.set(`x-metadata-${key}`, value);
    return this.#rest(this.#files(path), { method: 'POST', headers, body });
  }

  #files(path?: string): string {
    const query = new URLSearchParams({ username: this.#user, ...(path === undefined ? {} : { path }) });
    return `/files?${query}`;
  }

  async #entries(method: 'Stat' | 'ListDir', path: string): Promise<Answer> {
    const [answer, { entry, entries }] = await this.#rpc(method, { path });
    const all = [entry ?? entries ?? []].flat() as Partial<Described>[];
    const described = all.map(({ name = '', type = 'FILE_TYPE_UNSPECIFIED', mode = 0, metadata = {} }) => ({
      ...{ name, type, mode, metadata },
    }));
    return { ...answer, entries: described };
  }

  async #watch(path: string): Promise<Answer> {
    const [answer, { watcherId }] = await this.#rpc('CreateWatcher', { path });
    if (watcherId) await this.#rpc('RemoveWatcher', { watcherId });
    return answer;
  }

  async make(operation: OperationSpec, path: string, second: string, third: string): Promise<Answer> {
    const { kind, metadata } = operation;
    switch (kind) {
      case 'Stat':
      case 'ListDir':
        return this.#entries(kind, path);
      case 'watch':
        return this.#watch(path);
      case 'Move':
        return (await this.#rpc(kind, { source: path, destination: second }))[0];
      case 'MakeDir':
      case 'Remove':
        return (await this.#rpc(kind, { path }))[0];
      case 'download':
        return this.#rest(this.#files(path), {});
      case 'upload':
        return this.#upload(path, RAW, metadata, CONTENT);
      case 'multipart':
        return this.#upload(path, MULTIPART, metadata, multipartBody([filePart('x', CONTENT)]));
      case 'compose':
      case 'compose two': {
        const sources = kind === 'compose' ? [path] : [path, third];
        const body = { source_paths: sources, destination: second, username: this.#user };
        const headers = { 'content-type': 'application/json' };
        return this.#rest('/files/compose', { method: 'POST', headers, body: JSON.stringify(body) });
      }
    }
  }
}
