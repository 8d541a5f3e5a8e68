import { canTransfer } from './copy.ts';
import type { Excludes } from './excludes.ts';
import { type DestinationTree, itemsOf, type SourceTree, type TreeItem } from './item.ts';
import { inParallel } from './pool.ts';
import { RemoteTree } from './remote-tree.ts';

/** A smaller difference between two times is ignored, in milliseconds, because some file systems store fewer digits. */
const SAME_MS = 2;
/** The clock of a daemon is known to this precision, in milliseconds. */
const CLOCK_ERROR_MS = 2_000;

/** The steps that make the destination equal to the source. */
export interface SyncPlan {
  /** These items of the destination are removed first, each with everything below. */
  readonly remove: readonly TreeItem[];
  readonly transfer: readonly TreeItem[];
  /** Of these items, only the mode differs. */
  readonly modes: readonly TreeItem[];
  /** A directory is in the place of these items, and stays, with the reason. */
  readonly blocked: readonly (readonly [TreeItem, why: string])[];
  readonly same: number;
}

export interface SyncOptions {
  /** If true, what the source does not have is removed, and directories give way to other kinds. */
  readonly delete?: boolean;
  readonly checksum?: boolean;
  readonly parallel?: number;
}

interface Trees {
  readonly source: SourceTree;
  readonly destination: SourceTree & DestinationTree;
}

/**
 * Compares two trees. Files and links with the same size and time are equal. If only the times of files differ, the digests
 * decide. Without digests, which only envd sends, a file counts as equal if the destination wrote it after the last change of
 * the source.
 */
export async function planSync(
  { source, destination, excludes }: Trees & { readonly excludes: Excludes },
  { delete: isDeleting = false, checksum = false, parallel = 8 }: SyncOptions = {},
): Promise<SyncPlan> {
  // The source has the patterns for both sides, so it comes first.
  const wanted = await itemsOf(source, (items) => excludes.ofSource(source, items));
  const there = new Map<string, TreeItem>();
  if ((await destination.root())?.kind === 'directory')
    for (const item of await itemsOf(destination, (items) => excludes.ofDestination(items)))
      there.set(keyOf(item), item);
  const aheadMs = destination instanceof RemoteTree ? (await destination.state()).clockAheadMs : 0;
  const keepsModes = await destination.keepsModes();
  const transfer = new Set<TreeItem>();
  const modes = new Set<TreeItem>();
  const same = new Set<TreeItem>();
  const replaced: TreeItem[] = [];
  const blocked: (readonly [TreeItem, string])[] = [];
  await inParallel(wanted, parallel, async (item) => {
    const known = there.get(keyOf(item));
    if (known && known.kind !== item.kind && canTransfer(item)) {
      const why = whyItStays(known, excludes, isDeleting);
      if (why !== null) return void blocked.push([item, why]);
      replaced.push(known);
    }
    if (!known || !(await isSame({ source, destination }, item, known, { checksum, aheadMs })))
      transfer.add(item);
    else if (keepsModes && item.kind !== 'link' && item.mode !== known.mode) modes.add(item);
    else same.add(item);
  });
  // The names of one file are transferred together, so that they lead to one file again.
  const linked = new Set(Array.from(transfer, ({ identity }) => identity));
  linked.delete(null);
  for (const item of [...same, ...modes])
    if (linked.has(item.identity)) {
      transfer.add(item);
      same.delete(item);
      modes.delete(item);
    }
  const kept = new Set(wanted.map(keyOf));
  const untouched = [...wanted.filter((item) => !canTransfer(item)), ...blocked.map(([item]) => item)];
  const left = new Set(untouched.map(keyOf));
  const extra = Array.from(there.values()).filter(
    (item) => !kept.has(keyOf(item)) && !isBelow(item, left) && !excludes.isHolder(item),
  );
  return {
    remove: outermost(isDeleting ? [...extra, ...replaced] : replaced),
    transfer: wanted.filter((item) => transfer.has(item)),
    modes: wanted.filter((item) => modes.has(item)),
    blocked,
    same: same.size,
  };
}

/** Returns why an item of the destination does not give way to another kind, or null if it does. */
function whyItStays(known: TreeItem, excludes: Excludes, isDeleting: boolean): string | null {
  if (known.kind !== 'directory') return null;
  if (excludes.isHolder(known)) return 'a directory is there with something that is left out';
  return isDeleting ? null : 'a directory is there, which only --delete replaces';
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
  if (item.kind === 'directory') return true;
  if (item.size !== known.size) return false;
  const isSameTime = Math.abs(item.modified - known.modified) < SAME_MS;
  // The size of a link is the length of its target. A daemon tells where a link leads, and not the target as it is.
  if (item.kind === 'link') return isSameTime;
  if (item.kind !== 'file') return false;
  if (!checksum && isSameTime) return true;
  const theirs = await destination.digest(known);
  const ours = theirs === null ? null : await source.digest(item);
  if (theirs !== null && ours !== null) return theirs === ours;
  // The times are compared by the clock of the source. If the difference of the clocks is unknown, times prove nothing.
  return !checksum && aheadMs !== null && known.modified + aheadMs > item.modified + CLOCK_ERROR_MS;
}

/** Returns the items without those below a directory that is removed as a whole. */
function outermost(items: readonly TreeItem[]): TreeItem[] {
  const keys = new Set(items.map(keyOf));
  return items.filter((item) => !isBelow(item, keys));
}

/** Returns whether an item is below one with such a key. */
function isBelow({ names }: TreeItem, keys: ReadonlySet<string>): boolean {
  return names.slice(0, -1).some((_, index) => keys.has(names.slice(0, index + 1).join('/')));
}

function keyOf({ names }: TreeItem): string {
  return names.join('/');
}
