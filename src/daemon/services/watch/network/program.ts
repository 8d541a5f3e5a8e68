// This program accesses a network file system for the daemon, so that a file system that hangs blocks this process and not the
// daemon. It communicates with `NetworkProcess` over an IPC channel.
import { statfs } from 'node:fs/promises';
import { EnvdError, messageOf } from '../../../../base/errors.ts';
import { nameProcess } from '../../../../base/program/main.ts';
import { type BytePath, pathBuffer } from '../../../linux/paths/byte-path.ts';
import type { TreeChange } from '../local/event.ts';
import { KernelWatches } from '../local/kernel-watches.ts';
import { MergedWatch } from './merged-watch.ts';
import type { NetworkReport, NetworkRequest, SentError } from './protocol.ts';

const ALIVE_MS = 1000;

class Program {
  readonly #kernel = new KernelWatches();
  /** The watches by id. `stop` ends a watch, also while it is being started. */
  readonly #watches = new Map<number, { readonly root: BytePath; readonly stop: AbortController }>();

  take(request: NetworkRequest): void {
    if (request.type === 'start') void this.#run(request);
    else this.#watches.get(request.id)?.stop.abort();
  }

  /** Reports `alive` every second for as long as statfs(2) of the watched directories returns. */
  async sayAlive(): Promise<void> {
    const roots = Array.from(this.#watches.values(), ({ root }) => root);
    for (const root of new Set(roots)) await statfs(pathBuffer(root)).catch(() => {});
    report({ type: 'alive' });
    setTimeout(() => void this.sayAlive(), ALIVE_MS);
  }

  async #run({ id, root, recursive }: NetworkRequest & { type: 'start' }): Promise<void> {
    const stop = new AbortController();
    const { promise: stopped, resolve, reject } = Promise.withResolvers<void>();
    stop.signal.addEventListener('abort', () => resolve());
    this.#watches.set(id, { root, stop });
    let error: SentError | null = null;
    try {
      const reportChanges = (changes: readonly TreeChange[]) => report({ type: 'changes', id, changes });
      const ended = (reason: unknown) => (reason === null ? resolve() : reject(reason));
      using _ = await MergedWatch.start(
        { kernel: this.#kernel, root, recursive, report: reportChanges, ended },
        stop.signal,
      );
      report({ type: 'started', id });
      await stopped;
    } catch (reason) {
      error = describe(reason);
    }
    this.#watches.delete(id);
    // The daemon ignores this message for a watch that it has stopped.
    report({ type: 'ended', id, error });
  }
}

function report(message: NetworkReport): void {
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
  process.on('message', (request: NetworkRequest) => program.take(request));
  process.on('disconnect', () => process.exit(0));
  void program.sayAlive();
}

main();
