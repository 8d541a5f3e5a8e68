import type { DestinationTree, SourceTree, TreeItem } from './item.ts';
import { LocalTree } from './local-tree.ts';
import { inParallel } from './pool.ts';
import { RemoteTree } from './remote-tree.ts';

/**
 * Returns the items of each file: several if it has several names that can be kept. A daemon is asked only about files that look
 * alike, `parallel` at a time.
 */
export async function groupByFile(
  files: readonly TreeItem[],
  source: SourceTree,
  destination: DestinationTree,
  parallel: number,
): Promise<Iterable<readonly TreeItem[]>> {
  const identities = new Map<TreeItem, string | null>();
  if (source instanceof RemoteTree && destination instanceof LocalTree) {
    const alike = Map.groupBy(files, ({ size, modified }) => `${size} ${modified}`);
    const doubtful = Array.from(alike.values()).filter(({ length }) => length > 1);
    await inParallel(doubtful.flat(), parallel, (item) =>
      source.identityOf(item).then(
        (identity) => void identities.set(item, identity),
        // What cannot be asked about cannot be copied either, and the copy says why.
        () => {},
      ),
    );
  }
  return Map.groupBy(files, (item) => identities.get(item) ?? item).values();
}
