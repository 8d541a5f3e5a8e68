import {
  IN_ATTRIB,
  IN_CLOSE_WRITE,
  IN_CREATE,
  IN_DELETE,
  IN_DELETE_SELF,
  IN_IGNORED,
  IN_ISDIR,
  IN_MODIFY,
  IN_MOVE_SELF,
  IN_MOVED_FROM,
  IN_MOVED_TO,
  IN_Q_OVERFLOW,
  IN_UNMOUNT,
  type InotifyEvent,
} from '../../../linux/inotify/inotify.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';
import type { Conjecture, Directory, Rename, Scan } from './directory.ts';
import { entryKindOf, isInPlace, modifiedMsOf, pathOf } from './places.ts';
import type { Tree } from './tree.ts';

const ARRIVALS = IN_CREATE | IN_MOVED_TO;
const DEPARTURES = IN_DELETE | IN_MOVED_FROM;

/** The name that inotify events give to an unnamed temporary file (O_TMPFILE): `#` and the inode number. */
const UNNAMED = /^#\d+$/;

/** The most events that wait for the survey or the arrival of a directory. */
const MOST_KEPT = 65_536;

/** Applies an event of a directory's kernel watch. */
export function applyEvent(tree: Tree, directory: Directory, event: InotifyEvent): void {
  if (tree.isOver) return;
  if (event.mask & IN_Q_OVERFLOW) {
    if (directory === tree.root) tree.renew();
    return;
  }
  const top = directory.top();
  if (top !== tree.root) keep(tree, top.moving?.events, [directory, event]);
  else if (event.name === '') applyToItself(tree, directory, event.mask);
  else if (directory.scan) keep(tree, directory.scan.events, event);
  // Events before the survey are ignored, because the survey sees their results.
  else if (directory.surveyed) applyToEntry(tree, directory, event);
}

/** Applies an event that came since the watch was added, unless the scan has seen its result already. */
export function applyAfterScan(tree: Tree, directory: Directory, event: InotifyEvent, scan: Scan): void {
  const { known, applied, overlapping } = scan;
  const { mask, name } = event;
  const isArrival = (mask & ARRIVALS) !== 0;
  if (applied < overlapping && known.has(name) === isArrival) return;
  if (isArrival) known.set(name, (mask & IN_ISDIR) !== 0);
  else if (mask & DEPARTURES) known.delete(name);
  applyToEntry(tree, directory, event);
}

/** Keeps an event for later. When too many wait, the tree begins anew. */
function keep<T>(tree: Tree, events: T[] | undefined, event: T): void {
  if (events && events.push(event) > MOST_KEPT) tree.renew();
}

/**
 * Applies an event of a watched directory itself. Only the root's matter: the watch of the parent reports those of others.
 */
function applyToItself(tree: Tree, directory: Directory, mask: number): void {
  if (mask & IN_IGNORED) directory.descriptor = null;
  if (directory !== tree.root) return;
  const isGone = (mask & (IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED)) !== 0;
  if (isGone || mask & IN_MOVE_SELF) {
    // Before the tree is live the event may be older than this watch, so the path is checked.
    if (tree.isLive) tree.leaveRoot(isGone ? 'remove' : 'rename');
    else tree.checkRoot(isGone ? 'remove' : 'rename');
  } else if (mask & IN_ATTRIB && isInPlace(tree, tree.root)) {
    // rmdir(2) causes IN_ATTRIB, too, and is no change of attributes.
    tree.report('chmod', directory, '.');
  }
}

function applyToEntry(tree: Tree, directory: Directory, { mask, name, cookie }: InotifyEvent): void {
  const isDirectory = (mask & IN_ISDIR) !== 0 && tree.recursive;
  explain(directory, mask, name);
  if (mask & IN_CREATE) addEntry(tree, directory, name, isDirectory);
  if (mask & IN_MOVED_TO) applyArrival(tree, directory, name, isDirectory, cookie);
  if (mask & IN_MODIFY) reportUnlessUnnamed(tree, 'write', directory, name);
  if (mask & IN_CLOSE_WRITE) void applyClose(tree, directory, name);
  if (mask & IN_ATTRIB) reportUnlessUnnamed(tree, 'chmod', directory, name);
  if (mask & IN_MOVED_FROM) {
    tree.report('rename', directory, name);
    tree.startMove(cookie, directory, name);
  }
  if (mask & IN_DELETE) tree.removeEntry(directory, name);
}

/** Drops the conjecture about an entry that an event explains. */
function explain({ conjectures }: Directory, mask: number, name: BytePath): void {
  const conjecture = conjectures?.get(name);
  if (!conjecture) return;
  const explaining =
    conjecture.what === 'written' ? ARRIVALS | DEPARTURES | IN_MODIFY | IN_ATTRIB : ARRIVALS | DEPARTURES;
  if (mask & explaining) conjectures?.delete(name);
}

/** Waits for all events up to now. Returns whether none of them explains the conjecture. */
async function stands(
  tree: Tree,
  directory: Directory,
  name: BytePath,
  conjecture: Conjecture,
): Promise<boolean> {
  directory.conjectures ??= new Map();
  directory.conjectures.set(name, conjecture);
  await tree.kernel.settled();
  if (directory.conjectures.get(name) !== conjecture) return false;
  directory.conjectures.delete(name);
  return pathOf(tree, directory) !== null;
}

function addEntry(tree: Tree, directory: Directory, name: BytePath, isDirectory: boolean): void {
  tree.forget(directory, name);
  tree.report('create', directory, name);
  if (isDirectory) tree.addDirectory(directory, name);
}

function reportUnlessUnnamed(
  tree: Tree,
  type: 'write' | 'chmod',
  directory: Directory,
  name: BytePath,
): void {
  if (!UNNAMED.test(name) || entryKindOf(tree, directory, name)) tree.report(type, directory, name);
}

/** Reports a write when the file has changed after its last event: it was written through a shared mapping. */
async function applyClose(tree: Tree, directory: Directory, name: BytePath): Promise<void> {
  if (directory.descriptor === null || directory.conjectures?.has(name)) return;
  const { at, isWritten } = tree.kernel.recentChanges.of(directory.descriptor, name);
  if (isWritten) return;
  if (modifiedMsOf(tree, directory, name) <= Math.max(at, directory.surveyedMs)) return;
  if (await stands(tree, directory, name, { what: 'written' })) tree.report('write', directory, name);
}

function applyArrival(
  tree: Tree,
  directory: Directory,
  name: BytePath,
  isDirectory: boolean,
  cookie: number,
): void {
  const rename = tree.takeMove(cookie);
  tree.forget(directory, name);
  tree.report('create', directory, name, rename?.path);
  if (rename?.moved) settle(tree, rename.moved, directory, name);
  // If it was taken for a directory that had left the tree, it is reported as new, with all its entries.
  else if (isDirectory) tree.addDirectory(directory, name);
  if (rename && tree.isReverse(rename, directory.path(name))) {
    void checkExchange(tree, rename, directory, name, isDirectory);
  }
}

/** Attaches a directory at its new path, and handles what has waited for that since IN_MOVED_FROM. */
function settle(tree: Tree, moved: Directory, directory: Directory, name: BytePath): void {
  moved.place(directory, name);
  const { moving } = moved;
  moved.moving = null;
  for (const each of moving?.unsurveyed ?? []) tree.enqueue(each, tree.isPatient);
  for (const [below, event] of moving?.events ?? []) applyEvent(tree, below, event);
}

/**
 * Reports an exchange if an entry exists at the old path and no event explains it. The events up to now are awaited before
 * the file system is asked, because there may be many such renames and most of them are explained by an event.
 */
async function checkExchange(
  tree: Tree,
  from: Rename,
  directory: Directory,
  name: BytePath,
  isDirectory: boolean,
): Promise<void> {
  const exchange: Conjecture = { what: 'exchanged' };
  if (!(await stands(tree, from.directory, from.name, exchange))) return;
  const other = entryKindOf(tree, from.directory, from.name);
  if (!other || !(await stands(tree, from.directory, from.name, exchange)) || !pathOf(tree, directory))
    return;
  if (isDirectory || directory.children.has(name)) {
    tree.removeEntry(directory, name);
    addEntry(tree, directory, name, isDirectory);
  }
  addEntry(tree, from.directory, from.name, other === 'directory' && tree.recursive);
}
