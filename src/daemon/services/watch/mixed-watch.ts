import type { BytePath } from '../../linux/paths/byte-path.ts';
import type { WatchSink } from './local/event.ts';
import type { KernelWatches } from './local/kernel-watches.ts';
import { LocalWatch } from './local/local-watch.ts';
import { type NetworkProcesses, NetworkWatch } from './network/watch.ts';
import type { WatchRoot } from './root.ts';

export interface MixedWatchOptions {
  readonly kernel: KernelWatches;
  readonly processes: NetworkProcesses;
  readonly root: WatchRoot;
  readonly recursive: boolean;
  readonly sink: WatchSink;
}

/** A watch of a local directory and of the network file systems mounted below it. */
export class MixedWatch implements Disposable {
  readonly #options: MixedWatchOptions;
  readonly #local: LocalWatch;
  readonly #networks: NetworkWatch[] = [];

  constructor(options: MixedWatchOptions) {
    const { kernel, root, recursive, sink } = options;
    this.#options = options;
    const excluded = new Set([...root.networkMounts, ...root.excluded]);
    const enters = (path: BytePath) => !excluded.has(path);
    this.#local = new LocalWatch({ kernel, ground: root, recursive, sink, enters });
  }

  /** Resolves when everything is watched. Throws as `LocalWatch.start` and `NetworkWatch.start` do. */
  async start(signal?: AbortSignal): Promise<void> {
    for (const mount of this.#options.root.networkMounts) {
      const network = this.#watchNetwork(mount);
      this.#networks.push(network);
      await network.start(signal);
    }
    await this.#local.start(signal);
  }

  [Symbol.dispose](): void {
    for (const network of this.#networks) network[Symbol.dispose]();
    this.#local[Symbol.dispose]();
  }

  #watchNetwork(mount: BytePath): NetworkWatch {
    const { processes, root, sink } = this.#options;
    const prefix = mount.slice(root.path === '/' ? 1 : root.path.length + 1);
    return new NetworkWatch({
      processes,
      mount,
      root: mount,
      recursive: true,
      prefix,
      sink: {
        push: (type, directory, name, movedFrom) => {
          // Events of the mount point itself are dropped: the directory still exists after the unmount.
          if (name !== prefix || type === 'chmod') sink.push(type, directory, name, movedFrom);
        },
        // Without an error it has been unmounted, and the watch is made again.
        end: (error) => error && this.#local.fail(error),
      },
    });
  }
}
