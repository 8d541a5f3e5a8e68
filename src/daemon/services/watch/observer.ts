import type { BytePath } from '../../linux/paths/byte-path.ts';
import type { WatchSink } from './local/event.ts';
import type { KernelWatches } from './local/kernel-watches.ts';
import { LocalWatch } from './local/local-watch.ts';
import { type NetworkProcesses, watchNetwork } from './network/watch.ts';
import type { WatchRoot } from './root.ts';

/** What all observers share. */
export interface Engines {
  readonly kernel: KernelWatches;
  readonly processes: NetworkProcesses;
}

/**
 * Observes a directory, and the network file systems mounted below it; tells `sink` what changes until it is disposed of.
 * Resolves when everything is watched. Throws as `LocalWatch.start` and `watchNetwork` do.
 */
export async function observe(
  { kernel, processes }: Engines,
  root: WatchRoot,
  recursive: boolean,
  sink: WatchSink,
  signal?: AbortSignal,
): Promise<Disposable> {
  const { path, mount } = root;
  if (root.isNetwork)
    return watchNetwork(processes, { mount, root: path, recursive, prefix: '', sink }, signal);
  using observers = new DisposableStack();
  const failures: Error[] = [];
  for (const below of root.networkMounts) {
    const prefix = below.slice(path === '/' ? 1 : path.length + 1);
    const options = { mount: below, root: below, recursive: true, prefix };
    const sinkOfMount = sinkBelow(prefix, sink, failures);
    observers.use(await watchNetwork(processes, { ...options, sink: sinkOfMount }, signal));
  }
  const excluded = new Set([...root.networkMounts, ...root.excluded]);
  const enters = (each: BytePath) => !excluded.has(each);
  observers.use(await LocalWatch.start({ kernel, ground: root, recursive, enters, sink }, signal));
  // A mount has failed meanwhile.
  for (const failure of failures) throw failure;
  return observers.move();
}

/** For the network mount at `prefix` below a local directory. */
function sinkBelow(prefix: BytePath, sink: WatchSink, failures: Error[]): WatchSink {
  return {
    push(change) {
      // Other changes of the mount point are dropped: the directory still exists after the unmount.
      if (change.name !== prefix || change.type === 'chmod') sink.push(change);
    },
    end(error) {
      // Without an error it has been unmounted, and the directory is observed anew.
      if (!error) return;
      failures.push(error);
      sink.end(error);
    },
  };
}
