import { onAbort } from '../../../../base/abort.ts';
import { type BytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import type { WatchSink } from '../local/event.ts';
import { NetworkProcess } from './process.ts';
import type { SentEvent } from './protocol.ts';

/** The processes that watch network mounts: one per mount with at least one watch. */
export class NetworkProcesses implements Disposable {
  /** By mount point. */
  readonly #processes = new Map<BytePath, NetworkProcess>();

  /** The process for `mount`. Call `release` after a watch has stopped. */
  acquire(mount: BytePath): NetworkProcess {
    const running = this.#processes.get(mount);
    if (running && !running.isOver) return running;
    const started = new NetworkProcess(mount);
    this.#processes.set(mount, started);
    return started;
  }

  release(mount: BytePath): void {
    const process = this.#processes.get(mount);
    if (!process?.isIdle) return;
    process[Symbol.dispose]();
    this.#processes.delete(mount);
  }

  [Symbol.dispose](): void {
    for (const process of this.#processes.values()) process[Symbol.dispose]();
    this.#processes.clear();
  }
}

export interface NetworkWatchOptions {
  readonly processes: NetworkProcesses;
  /** The mount point of the root's file system. */
  readonly mount: BytePath;
  /** Without symbolic links. */
  readonly root: BytePath;
  readonly recursive: boolean;
  /** Prefix of the names of events. */
  readonly prefix: BytePath;
  readonly sink: WatchSink;
}

/** A watch of a directory on a network file system. */
export class NetworkWatch implements Disposable {
  readonly #options: NetworkWatchOptions;
  readonly #started = Promise.withResolvers<void>();
  #stop: () => void = () => {};

  constructor(options: NetworkWatchOptions) {
    this.#options = options;
  }

  /** Resolves when everything is watched. Throws `unavailable` when the file system does not answer. */
  async start(signal?: AbortSignal): Promise<void> {
    const { processes, mount, root, recursive, sink } = this.#options;
    const stop = processes.acquire(mount).watch(root, recursive, {
      started: () => this.#started.resolve(),
      events: (events) => this.#pass(events),
      ended: (error) => {
        if (error) this.#started.reject(error);
        else this.#started.resolve();
        sink.end(error);
        this[Symbol.dispose]();
      },
    });
    this.#stop = () => {
      stop();
      processes.release(mount);
    };
    const ignore = signal ? onAbort(signal, () => this.#started.reject(signal.reason)) : () => {};
    try {
      await this.#started.promise;
    } catch (error) {
      this[Symbol.dispose]();
      throw error;
    } finally {
      ignore();
    }
  }

  [Symbol.dispose](): void {
    this.#stop();
    this.#stop = () => {};
  }

  #pass(events: readonly SentEvent[]): void {
    const { prefix, sink } = this.#options;
    const name = (own: BytePath) => (prefix !== '' && own === '.' ? prefix : joinBytes(prefix, own));
    for (const [type, own, movedFrom] of events) {
      if (type === 'rescan') sink.push('rescan', '', '.');
      else sink.push(type, '', name(own), movedFrom && name(movedFrom));
    }
  }
}
