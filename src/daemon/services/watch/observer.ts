import { type BytePath, joinBytes } from '../../linux/paths/byte-path.ts';
import type { WatchSink } from './local/event.ts';
import type { KernelWatches } from './local/kernel-watches.ts';
import { LocalWatch } from './local/local-watch.ts';
import type { NetworkProcesses } from './network/process.ts';
import type { WatchRoot } from './root.ts';

/** What all observers share. */
export interface Engines {
  readonly kernel: KernelWatches;
  readonly processes: NetworkProcesses;
}

/**
 * Observes a directory, and the network file systems mounted below it; tells `sink` what changes until it is disposed of.
 * Resolves when everything is watched. Throws as `LocalWatch.start` and `NetworkProcess.watch` do.
 */
export async function observeDirectory(
  { kernel, processes }: Engines,
  root: WatchRoot,
  recursive: boolean,
  sink: WatchSink,
  signal?: AbortSignal,
): Promise<Disposable> {
  const { path } = root;
  if (root.isNetwork) return processes.of(root.mount).watch(path, recursive, sink, signal);
  using observers = new DisposableStack();
  const failures: Error[] = [];
  for (const mount of root.networkMounts) {
    const prefix = mount.slice(path === '/' ? 1 : path.length + 1);
    const sinkOfMount = sinkBelow(prefix, sink, failures);
    observers.use(await processes.of(mount).watch(mount, true, sinkOfMount, signal));
  }
  const excluded = new Set([...root.networkMounts, ...root.excluded]);
  const enters = (each: BytePath) => !excluded.has(each);
  observers.use(await LocalWatch.start({ kernel, ground: root, recursive, enters, sink }, signal));
  // A mount has failed meanwhile.
  for (const failure of failures) throw failure;
  return observers.move();
}

/** Passes on the changes of the network mount at `prefix`, below the watched directory. */
function sinkBelow(prefix: BytePath, sink: WatchSink, failures: Error[]): WatchSink {
  return {
    push(change) {
      const { type, name, movedFrom } = change;
      if (type === 'rescan') sink.push(change);
      else if (name !== '.') {
        sink.push({
          ...change,
          name: joinBytes(prefix, name),
          movedFrom: movedFrom && joinBytes(prefix, movedFrom),
        });
      } else if (type === 'chmod') {
        // Other changes of the mount point are dropped: the directory still exists after the unmount.
        sink.push({ ...change, name: prefix });
      }
    },
    end(error) {
      // Without an error it has been unmounted, and the directory is observed anew.
      if (!error) return;
      failures.push(error);
      sink.end(error);
    },
  };
}
