import { EnvdError, isSystemError } from '../../../../base/errors.ts';
import { monotonicMs } from '../../../../base/monotonic.ts';
import type { DirectoryHandle } from '../../../linux/files/directory-handle.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Directory, Scan } from './directory.ts';
import { applyAfterScan } from './entry-events.ts';
import { findBelow, findDirectory, openBelow, openRoot, pathOf, watchDirectory } from './places.ts';
import type { Tree } from './tree.ts';

/** How long a slice may take, in milliseconds. */
const SLICE_MS = 5;
const STEPS_BETWEEN_CLOCK_READS = 64;
/** The most directories that are read in one slice. */
const MOST_AT_ONCE = 256;
/** After how long a directory that was not found is tried again, in milliseconds. The time doubles with each attempt. */
const RETRY_MS = 5;
/** The number of attempts that the start of a watch waits for. They take 0.3 s. */
const PATIENT_ATTEMPTS = 6;
/** The number of attempts after which a directory counts as removed. They take 10 s. */
const MOST_ATTEMPTS = 11;
/** The most bytes of names of one directory that are kept until they are reported. */
const MOST_KNOWN = 16 * 1024 * 1024;
/** The bytes that V8 needs for an entry of `Scan.known`, besides the characters of its name. */
const NAME_BYTES = 64;

/**
 * Surveys the directories of a tree until it is over: adds a watch to each, then reads its names. The tree follows the events,
 * so it lags behind the file system. A directory is therefore opened through its parent, after a check that the parent is the
 * one that is watched. Its names are accepted only after all events up to the read have been handled, and only if none of them
 * moved or removed it. Otherwise it is surveyed again. See `docs/decisions/011-inotify.md`. Throws open(2)'s and
 * inotify_add_watch(2)'s errors of the root, and `resource_exhausted` at the limit of kernel watches.
 */
export async function surveyTree(tree: Tree): Promise<void> {
  const { kernel } = tree;
  while (!tree.isOver) {
    await tree.hasUnsurveyed();
    // Events that are queued now may move or remove these directories.
    await kernel.drained();
    if (tree.isOver) return;
    const scanned = await scanSome(tree);
    if (scanned.length > 0) await kernel.passed(() => markOverlap(scanned));
    let deadline = monotonicMs() + SLICE_MS;
    for (const directory of scanned) {
      while (!conclude(tree, directory, deadline)) {
        await kernel.turn();
        deadline = monotonicMs() + SLICE_MS;
      }
    }
    tree.surveyed();
  }
}

/** Call it when all events up to the end of the read have come. */
function markOverlap(scanned: readonly Directory[]): void {
  for (const { scan: result } of scanned)
    if (result && !result.isAccepted) result.overlapping = result.events.length;
}

/** Reads directories of the queue for a slice; returns those whose scan is to be concluded. */
async function scanSome(tree: Tree): Promise<Directory[]> {
  const deadline = monotonicMs() + SLICE_MS;
  const scanned: Directory[] = [];
  const batch = tree.unsurveyed.splice(0, MOST_AT_ONCE);
  using root = findDirectory(tree, tree.root);
  let taken = 0;
  let next = batch[0];
  while (next && monotonicMs() < deadline) {
    const { parent } = next;
    using below = root && parent && parent !== tree.root ? findBelow(tree, root, parent) : null;
    const place = parent === tree.root ? root : below;
    do {
      if (await scan(tree, next, place)) scanned.push(next);
      next = batch[++taken];
    } while (next?.parent === parent && monotonicMs() < deadline);
  }
  tree.unsurveyed.unshift(...batch.slice(taken));
  return scanned;
}

/** Watches a directory, which is opened through `parent`, and reads its names. Returns whether this is to be concluded. */
async function scan(tree: Tree, directory: Directory, parent: DirectoryHandle | null): Promise<boolean> {
  // This directory moved while its names were being accepted. The rest of them is accepted now.
  if (directory.scan) return directory.scan.isAccepted;
  if (!isToBeScanned(tree, directory)) {
    tree.awaited.delete(directory);
    return false;
  }
  const result = newScan(directory.moves);
  try {
    const isRoot = directory === tree.root;
    using handle = isRoot ? openRoot(tree) : openIn(tree, parent, directory);
    if (handle) result.outcome = watch(tree, directory, result, handle) ? 'found' : 'missing';
    directory.scan = result;
    return !handle || result.outcome === 'missing' || (await readNames(tree, directory, result, handle));
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'ENOTDIR', 'ELOOP')) return refused(tree, directory, error);
    if (directory.descriptor === null && directory === tree.root) tree.leaveRoot('remove');
    result.outcome = 'missing';
    directory.scan = result;
    return true;
  }
}

function openIn(tree: Tree, parent: DirectoryHandle | null, directory: Directory): DirectoryHandle | null {
  return parent && openBelow(tree, parent, directory.name, 'read', directory);
}

function isToBeScanned(tree: Tree, directory: Directory): boolean {
  if (directory.surveyed) return false;
  const top = directory.top();
  if (top !== tree.root) {
    top.moving?.unsurveyed.push(directory);
    return false;
  }
  const path = pathOf(tree, directory);
  return path !== null && (directory === tree.root || tree.enters(path));
}

function newScan(moves: number): Scan {
  const known: Scan['known'] = new Map();
  const unreported = known.entries();
  return {
    outcome: 'unknown',
    moves,
    known,
    unreported,
    events: [],
    overlapping: 0,
    applied: 0,
    isAccepted: false,
  };
}

/** Watches the open directory. Returns false when another directory is watched already at this place of the tree. */
function watch(tree: Tree, directory: Directory, { events }: Scan, handle: DirectoryHandle): boolean {
  const { kernel } = tree;
  if (directory.descriptor !== null) return kernel.isWatch(directory.descriptor, handle.path);
  watchDirectory(tree, directory, handle);
  // A kernel watch that others share also delivers events from before this subscription.
  if (kernel.isShared(directory)) {
    kernel.whenPassed(() => {
      events.length = 0;
    });
  }
  return true;
}

/** Reads all names. Returns false when that is useless, because the tree is over or begins anew. */
async function readNames(
  tree: Tree,
  directory: Directory,
  { known }: Scan,
  handle: DirectoryHandle,
): Promise<boolean> {
  const { isLive, recursive, root, kernel } = tree;
  let bytes = 0;
  let deadline = monotonicMs() + SLICE_MS;
  while (recursive) {
    const names = handle.nextNames(isLive);
    if (!names) break;
    bytes += addNames(known, names.directories, true) + addNames(known, names.others, false);
    // A new tree is read then, which reports none of the entries that it finds.
    if (isLive && bytes > MOST_KNOWN) tree.renew();
    if (monotonicMs() > deadline) {
      await kernel.turn();
      deadline = monotonicMs() + SLICE_MS;
    }
    if (tree.isOver || tree.root !== root) return false;
  }
  return directory.scan !== null;
}

function addNames(known: Scan['known'], names: readonly BytePath[], areDirectories: boolean): number {
  let bytes = 0;
  for (const name of names) {
    known.set(name, areDirectories);
    bytes += name.length + NAME_BYTES;
  }
  return bytes;
}

/**
 * Throws the error, unless it means that the directory is not to be entered, or that it can be watched soon: the limit of
 * kernel watches is reached, but some are being released.
 */
function refused(tree: Tree, directory: Directory, error: unknown): false {
  directory.scan = null;
  // The user whose link led to the root may not read this directory.
  const isForbidden = tree.ground.owner !== null && isSystemError(error, 'EACCES');
  const isAtLimit = error instanceof EnvdError && error.kind === 'resource_exhausted';
  if (isForbidden || isSystemError(error, 'EXDEV')) tree.awaited.delete(directory);
  else if (isAtLimit && tree.kernel.isReleasing) retryAfter(RETRY_MS, tree, directory);
  else throw error;
  return false;
}

/** Accepts what was read of a directory, or has it read again. Returns false when it has to be continued. */
function conclude(tree: Tree, directory: Directory, deadline: number): boolean {
  const { scan: result } = directory;
  const top = directory.top();
  const isInTree = top === tree.root;
  if (!isInTree) tree.awaited.delete(directory);
  if (!result || top.gone) return true;
  const isUnmoved = result.moves === directory.moves;
  const isValid = result.isAccepted || (isUnmoved && result.outcome === 'found');
  if (isInTree && isValid) return accept(tree, directory, result, deadline);
  if (!result.isAccepted) cancel(tree, directory);
  if (!isInTree) top.moving?.unsurveyed.push(directory);
  else if (isUnmoved && result.outcome === 'missing') missed(tree, directory);
  else outdated(tree, directory);
  return true;
}

/** Reports the entries and applies the events that came meanwhile. Returns false when it has to be continued. */
function accept(tree: Tree, directory: Directory, result: Scan, deadline: number): boolean {
  result.isAccepted = true;
  let steps = 0;
  const isLate = () => ++steps % STEPS_BETWEEN_CLOCK_READS === 0 && monotonicMs() > deadline;
  for (let next = result.unreported.next(); !next.done; next = result.unreported.next()) {
    const [name, isDirectory] = next.value;
    tree.report('create', directory, name);
    if (isDirectory) tree.enqueue(directory.addChild(name), tree.awaited.has(directory));
    if (isLate()) return false;
  }
  directory.surveyedMs = Date.now() + 1;
  for (let event = result.events[result.applied]; event; event = result.events[result.applied]) {
    applyAfterScan(tree, directory, event, result);
    result.applied++;
    if (isLate()) return false;
  }
  directory.scan = null;
  directory.surveyed = true;
  tree.awaited.delete(directory);
  return true;
}

function cancel(tree: Tree, directory: Directory): void {
  directory.scan = null;
  if (directory !== tree.root) tree.kernel.release(directory);
}

/** Tries again later, because the event of the move or the removal may take a while to come on a busy system. */
function missed(tree: Tree, directory: Directory): void {
  const count = ++directory.timesMissing;
  const isRoot = directory === tree.root;
  if (count <= (isRoot ? PATIENT_ATTEMPTS : MOST_ATTEMPTS)) retry(tree, directory, count);
  else if (isRoot) tree.renew();
  else if (directory.parent) tree.removeEntry(directory.parent, directory.name);
}

/** Reads the directory again. The tree lags behind changes, which may go on for any time, so this never gives up. */
function outdated(tree: Tree, directory: Directory): void {
  const count = directory.timesOutdated++;
  if (count === 0) tree.enqueue(directory);
  else retry(tree, directory, Math.min(count, PATIENT_ATTEMPTS + 1));
}

function retry(tree: Tree, directory: Directory, count: number): void {
  if (count > PATIENT_ATTEMPTS) tree.awaited.delete(directory);
  retryAfter(RETRY_MS * 2 ** (count - 1), tree, directory);
}

function retryAfter(milliseconds: number, tree: Tree, directory: Directory): void {
  setTimeout(() => tree.enqueue(directory), milliseconds).unref();
}
