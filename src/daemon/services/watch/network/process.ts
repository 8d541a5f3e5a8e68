import { type ChildProcess, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { untilAborted } from '../../../../base/abort.ts';
import { EnvdError } from '../../../../base/errors.ts';
import { type BytePath, displayPath } from '../../../linux/paths/byte-path.ts';
import { isBundle, NODE } from '../../../linux/system/self.ts';
import type { WatchSink } from '../local/event.ts';
import type { NetworkReport, NetworkRequest } from './protocol.ts';

/** A file system that has not answered for this long counts as hung, in milliseconds. */
const SILENCE_MS = 10_000;

/** The program is beside this file, and in an image beside the bundle of the daemon. */
const PROGRAM = new URL(isBundle ? './watch-network.cjs' : './program.ts', import.meta.url);

/** Runs one process for each network mount that is watched. */
export class NetworkProcesses implements Disposable {
  /** The last process for each mount point. It may have ended. */
  readonly #processes = new Map<BytePath, NetworkProcess>();

  /** Returns the process for `mount`. Call its `watch` at once, because a process ends when its last watch does. */
  of(mount: BytePath): NetworkProcess {
    const running = this.#processes.get(mount);
    if (running && !running.isOver) return running;
    const started = new NetworkProcess(mount);
    this.#processes.set(mount, started);
    return started;
  }

  [Symbol.dispose](): void {
    for (const process of this.#processes.values()) process[Symbol.dispose]();
  }
}

interface NetworkWatch {
  readonly sink: WatchSink;
  readonly started: PromiseWithResolvers<void>;
}

/** A process that watches directories of one network mount. It ends with its last watch. */
class NetworkProcess implements Disposable {
  readonly #mount: BytePath;
  readonly #child: ChildProcess;
  readonly #watches = new Map<number, NetworkWatch>();
  #lastId = 0;
  #silence: NodeJS.Timeout | null = null;
  isOver = false;

  constructor(mount: BytePath) {
    this.#mount = mount;
    // Without this flag SIGUSR1 would open an inspector, which any process of the guest could use.
    const [file, ...args] = [...NODE, '--disable-sigusr1', fileURLToPath(PROGRAM)];
    this.#child = spawn(file, args, {
      argv0: 'envd',
      env: {},
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    this.#child.unref();
    this.#child.channel?.unref();
    this.#child.on('message', (message: NetworkReport) => this.#handle(message));
    this.#child.on('error', (error) => this.#fail(error.message));
    this.#child.on('exit', (code, signal) => this.#fail(`its watcher has ended with ${signal ?? code}`));
    this.#listen();
  }

  /**
   * Watches a directory until the result is disposed of; resolves when everything is watched. `root` contains no symbolic
   * link. Throws `unavailable` when the file system does not answer, and the reason of `signal`.
   */
  async watch(
    root: BytePath,
    recursive: boolean,
    sink: WatchSink,
    signal?: AbortSignal,
  ): Promise<Disposable> {
    const id = ++this.#lastId;
    const started = Promise.withResolvers<void>();
    this.#watches.set(id, { sink, started });
    this.#send({ type: 'start', id, root, recursive });
    const stop = () => {
      if (!this.#watches.has(id)) return;
      this.#send({ type: 'stop', id });
      this.#remove(id);
    };
    try {
      await (signal ? untilAborted(started.promise, signal) : started.promise);
    } catch (error) {
      stop();
      throw error;
    }
    return { [Symbol.dispose]: stop };
  }

  [Symbol.dispose](): void {
    this.isOver = true;
    if (this.#silence) clearTimeout(this.#silence);
    this.#child.removeAllListeners();
    // A process that hangs in the file system handles no message and no other signal.
    this.#child.kill('SIGKILL');
  }

  #send(request: NetworkRequest): void {
    if (!this.isOver && this.#child.connected) this.#child.send(request, () => {});
  }

  #handle(message: NetworkReport): void {
    this.#listen();
    if (message.type === 'alive') return;
    const { id } = message;
    const watch = this.#watches.get(id);
    if (!watch) return;
    if (message.type === 'started') watch.started.resolve();
    else if (message.type === 'changes') for (const change of message.changes) watch.sink.push(change);
    else {
      this.#remove(id);
      end(watch, message.error && new EnvdError(message.error.kind, message.error.message));
    }
  }

  #remove(id: number): void {
    this.#watches.delete(id);
    if (this.#watches.size === 0) this[Symbol.dispose]();
  }

  /** Starts the timer for the next message anew. It waits a second more, in case the daemon's own event loop was busy. */
  #listen(): void {
    if (this.#silence) clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#silence = setTimeout(() => this.#fail('it does not answer'), SILENCE_MS / 10).unref();
    }, SILENCE_MS).unref();
  }

  #fail(reason: string): void {
    if (this.isOver) return;
    this[Symbol.dispose]();
    const mount = displayPath(this.#mount);
    const error = new EnvdError('unavailable', `cannot watch network filesystem '${mount}': ${reason}`);
    const watches = [...this.#watches.values()];
    this.#watches.clear();
    for (const watch of watches) end(watch, error);
  }
}

function end({ sink, started }: NetworkWatch, error: Error | null): void {
  if (error) started.reject(error);
  else started.resolve();
  sink.end(error);
}
