import { type BytePath, joinBytes } from '../../linux/paths/byte-path.ts';
import type { WatchSink } from './local/event.ts';
import type { KernelWatches } from './local/kernel-watches.ts';
import { watchLocally } from './local/local-watch.ts';
import type { NetworkProcesses } from './network/process.ts';
import type { WatchRoot } from './root.ts';

/** The means of observation that all observers share. */
export interface Engines {
  readonly kernel: KernelWatches;
  readonly processes: NetworkProcesses;
}

/**
 * Observes a directory and the network file systems mounted below it. `sink` gets the changes until the result is disposed
 * of. Resolves when everything is watched. Throws what `watchLocally` and `NetworkProcess.watch` throw.
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
  observers.use(await watchLocally({ kernel, ground: root, recursive, enters, sink }, signal));
  // A mount may have failed while the others were being started.
  for (const failure of failures) throw failure;
  return observers.move();
}

/** Returns a sink for the network mount at `prefix`, which is relative to the watched directory. */
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
        // A removal or a rename is dropped, because after the unmount the directory below the mount is still there.
        sink.push({ ...change, name: prefix });
      }
    },
    end(error) {
      // Without an error the mount was unmounted, and `Watcher` observes the directory anew.
      if (!error) return;
      failures.push(error);
      sink.end(error);
    },
  };
}
