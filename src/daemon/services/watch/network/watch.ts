import { untilAborted } from '../../../../base/abort.ts';
import { type BytePath, joinBytes } from '../../../linux/paths/byte-path.ts';
import type { TreeChange, WatchSink } from '../local/event.ts';
import { NetworkProcess } from './process.ts';

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
  /** The mount point of the root's file system. */
  readonly mount: BytePath;
  /** Without symbolic links. */
  readonly root: BytePath;
  readonly recursive: boolean;
  /** Prefix of the names of changes. */
  readonly prefix: BytePath;
  readonly sink: WatchSink;
}

/**
 * Watches a directory on a network file system until it is disposed of; resolves when everything is watched. Throws
 * `unavailable` when the file system does not answer, and the signal's reason.
 */
export async function watchNetwork(
  processes: NetworkProcesses,
  { mount, root, recursive, prefix, sink }: NetworkWatchOptions,
  signal: AbortSignal = new AbortController().signal,
): Promise<Disposable> {
  const { promise: started, resolve, reject } = Promise.withResolvers<void>();
  const stop = processes.acquire(mount).watch(root, recursive, {
    started: resolve,
    changed: (changes) => {
      for (const change of changes) sink.push(below(prefix, change));
    },
    ended: (error) => {
      if (error) reject(error);
      else resolve();
      sink.end(error);
      processes.release(mount);
    },
  });
  using watch = new DisposableStack();
  watch.defer(() => {
    stop();
    processes.release(mount);
  });
  await untilAborted(started, signal);
  return watch.move();
}

/** A change as seen from a directory above the root. */
function below(prefix: BytePath, change: TreeChange): TreeChange {
  if (prefix === '' || change.type === 'rescan') return change;
  const { name, movedFrom } = change;
  return {
    ...change,
    name: name === '.' ? prefix : joinBytes(prefix, name),
    movedFrom: movedFrom && joinBytes(prefix, movedFrom),
  };
}
