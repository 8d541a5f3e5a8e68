import type { Connection } from '../connection/connection.ts';
import { askState } from '../connection/daemon-state.ts';
import { itemsOf } from './copy.ts';
import type { DestinationTree, SourceTree, TreeItem } from './item.ts';
import { inParallel } from './pool.ts';
import { RemoteTree } from './remote-tree.ts';

/** Times that differ by less are the same, in milliseconds: file systems keep fewer digits. */
const SAME_MS = 2;
/** How exactly the clock of a daemon is known, in milliseconds. */
const CLOCK_ERROR_MS = 2_000;

/** What has to be done so that the destination is as the source. */
export interface SyncPlan {
  readonly transfer: readonly TreeItem[];
  /** At the destination only, the innermost first. */
  readonly extra: readonly TreeItem[];
  readonly same: number;
}

type Trees = { readonly source: SourceTree; readonly destination: SourceTree & DestinationTree };

/**
 * Compares two trees. Files of the same size and time are the same; with equal sizes and other times their digests decide. Without
 * digests, as with daemons other than envd, a file counts as the same if the destination has written it after it was changed.
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
  /** How far the clock of this machine is ahead of the destination's. */
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
  // By the clock of the source; one that is not known says nothing.
  return !checksum && aheadMs !== null && known.modified + aheadMs > item.modified + CLOCK_ERROR_MS;
}

/** Without what is below something that is removed as a whole. */
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
