import type { Connection } from '../connection/connection.ts';
import { askState } from '../connection/daemon-state.ts';
import { itemsOf } from './copy.ts';
import type { DestinationTree, SourceTree, TreeItem } from './item.ts';
import { inParallel } from './pool.ts';
import { RemoteTree } from './remote-tree.ts';

/** A smaller difference between two times is ignored, in milliseconds, because some file systems store fewer digits. */
const SAME_MS = 2;
/** The clock of a daemon is known to this precision, in milliseconds. */
const CLOCK_ERROR_MS = 2_000;

/** The steps that make the destination equal to the source. */
export interface SyncPlan {
  readonly transfer: readonly TreeItem[];
  /** These items exist only at the destination. The innermost come first. */
  readonly extra: readonly TreeItem[];
  readonly same: number;
}

type Trees = { readonly source: SourceTree; readonly destination: SourceTree & DestinationTree };

/**
 * Compares two trees. Files with the same size and time are equal. If only the times differ, the digests decide. Without
 * digests, which only envd sends, a file counts as equal if the destination wrote it after the last change of the source.
 */
export async function planSync(
  { source, destination }: Trees,
  { checksum = false, parallel = 8 } = {},
): Promise<SyncPlan> {
  const there = new Map<string, TreeItem>();
  if ((await destination.root())?.kind === 'directory')
    for (const item of await itemsOf(destination)) there.set(keyOf(item), item);
  const aheadMs = destination instanceof RemoteTree ? await clockOf(destination.connection) : 0;
  const wanted = await itemsOf(source);
  const transfer = new Set<TreeItem>();
  let same = 0;
  await inParallel(wanted, parallel, async (item) => {
    const known = there.get(keyOf(item));
    if (known && (await isSame({ source, destination }, item, known, { checksum, aheadMs }))) same++;
    else transfer.add(item);
  });
  const kept = new Set(wanted.map(keyOf));
  const extra = Array.from(there.values()).filter((item) => !kept.has(keyOf(item)));
  return { transfer: wanted.filter((item) => transfer.has(item)), extra: outermost(extra), same };
}

interface Comparison {
  readonly checksum: boolean;
  /** The clock of this machine is ahead of the destination's by this time, in milliseconds. It is null if unknown. */
  readonly aheadMs: number | null;
}

async function isSame(
  { source, destination }: Trees,
  item: TreeItem,
  known: TreeItem,
  { checksum, aheadMs }: Comparison,
): Promise<boolean> {
  if (item.kind !== known.kind) return false;
  if (item.kind !== 'file') return item.kind === 'directory';
  if (item.size !== known.size) return false;
  if (!checksum && Math.abs(item.modified - known.modified) < SAME_MS) return true;
  const theirs = await destination.digest(known);
  const ours = theirs === null ? null : await source.digest(item);
  if (theirs !== null && ours !== null) return theirs === ours;
  // The times are compared by the clock of the source. If the difference of the clocks is unknown, times prove nothing.
  return !checksum && aheadMs !== null && known.modified + aheadMs > item.modified + CLOCK_ERROR_MS;
}

/** Returns the items without those below a directory that is removed as a whole. */
function outermost(items: readonly TreeItem[]): TreeItem[] {
  const keys = new Set(items.map(keyOf));
  return items.filter(
    ({ names }) => !names.slice(0, -1).some((_, index) => keys.has(names.slice(0, index + 1).join('/'))),
  );
}

async function clockOf(connection: Connection): Promise<number | null> {
  return (await askState(connection)).clockAheadMs;
}

function keyOf({ names }: TreeItem): string {
  return names.join('/');
}
