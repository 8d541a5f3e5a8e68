// A separate program that accesses a network file system for the daemon, so that a hung file system blocks this process
// and not the daemon. Communicates with `NetworkProcess` over an IPC channel.
import { statfs } from 'node:fs/promises';
import { EnvdError, messageOf } from '../../../../base/errors.ts';
import { nameProcess } from '../../../../base/program/main.ts';
import { type BytePath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import { KernelWatches } from '../local/kernel-watches.ts';
import { MergedWatch } from './merged-watch.ts';
import type { Report, Request, SentError } from './protocol.ts';

const ALIVE_MS = 1000;

/** The watches of one network file system. */
class Program {
  readonly #kernel = new KernelWatches();
  readonly #watches = new Map<number, { readonly watch: MergedWatch; readonly root: BytePath }>();

  take(request: Request): void {
    if (request.type === 'start') void this.#start(request);
    else this.#stop(request.id);
  }

  /** Reports `alive` every second for as long as statfs(2) of the watched directories returns. */
  async sayAlive(): Promise<void> {
    const roots = Array.from(this.#watches.values(), ({ root }) => root);
    for (const root of new Set(roots)) await statfs(pathBuffer(root)).catch(() => {});
    report({ type: 'alive' });
    setTimeout(() => void this.sayAlive(), ALIVE_MS);
  }

  async #start({ id, root, recursive }: Request & { type: 'start' }): Promise<void> {
    const ended = (error: unknown) => {
      this.#watches.delete(id);
      report({ type: 'ended', id, error: error === null ? null : describe(error) });
    };
    const tell = (events: (Report & { type: 'events' })['events']) => report({ type: 'events', id, events });
    const watch = new MergedWatch({ kernel: this.#kernel, root, recursive, tell, ended });
    this.#watches.set(id, { watch, root });
    try {
      await watch.start();
      report({ type: 'started', id });
    } catch (error) {
      watch[Symbol.dispose]();
      ended(error);
    }
  }

  #stop(id: number): void {
    this.#watches.get(id)?.watch[Symbol.dispose]();
    this.#watches.delete(id);
  }
}

function report(message: Report): void {
  if (process.connected) process.send?.(message);
}

function describe(error: unknown): SentError {
  return error instanceof EnvdError
    ? { kind: error.kind, message: error.message }
    : { kind: 'internal', message: messageOf(error) };
}

function main(): void {
  nameProcess('envd');
  const program = new Program();
  process.on('message', (request: Request) => program.take(request));
  process.on('disconnect', () => process.exit(0));
  void program.sayAlive();
}

main();
