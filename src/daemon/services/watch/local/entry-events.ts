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
import type { Directory, DirectoryScan, Rename } from './directory.ts';
import type { Tree } from './tree.ts';

const ARRIVALS = IN_CREATE | IN_MOVED_TO;
const DEPARTURES = IN_DELETE | IN_MOVED_FROM;

/** The name that inotify events give to an unnamed temporary file (O_TMPFILE): `#` and the inode number. */
const UNNAMED = /^#\d+$/;

/** The most events that wait for the survey or the arrival of a directory. */
const MOST_KEPT = 65_536;

/** Applies an event of a directory's kernel watch to the tree, which reports each change once. */
export function applyEvent(tree: Tree, directory: Directory, event: InotifyEvent): void {
  if (event.mask & IN_Q_OVERFLOW) {
    if (directory === tree.root) tree.tellRoot('rescan');
    return;
  }
  const top = directory.top();
  if (top !== tree.root) keep(tree, top.moving?.events, [directory, event]);
  else if (event.name === '') applyToItself(tree, directory, event.mask);
  else if (directory.look) keep(tree, directory.look.events, event);
  // Events before the survey are ignored, because the survey sees their results.
  else if (directory.surveyed) applyToEntry(tree, directory, event);
}

/**
 * Applies an event that was queued during the survey, unless the survey has seen its result already. `known` has the entries
 * that the survey found.
 */
export function replayEvent(
  tree: Tree,
  directory: Directory,
  event: InotifyEvent,
  known: DirectoryScan['known'],
): void {
  const { mask, name } = event;
  const isArrival = (mask & ARRIVALS) !== 0;
  if (known.has(name) === isArrival) return;
  if (isArrival) known.set(name, (mask & IN_ISDIR) !== 0);
  else if (mask & DEPARTURES) known.delete(name);
  applyToEntry(tree, directory, event);
}

/** Reports the removal of an entry, and removes its directory from the tree. */
export function removeEntry(tree: Tree, directory: Directory, name: BytePath): void {
  tree.forget(directory, name);
  tree.tell('remove', directory, name);
}

/** Keeps an event for later. When too many wait, a new tree is set up. */
function keep<T>(tree: Tree, events: T[] | undefined, event: T): void {
  if (events && events.push(event) > MOST_KEPT) tree.tellRoot('rescan');
}

/**
 * Applies an event of a watched directory itself. Only the root's matter: the watch of the parent reports those of others.
 */
function applyToItself(tree: Tree, directory: Directory, mask: number): void {
  if (mask & IN_IGNORED) directory.descriptor = null;
  if (directory !== tree.root) return;
  const isRooted = () => tree.isInPlace(directory);
  const isGone = (mask & (IN_DELETE_SELF | IN_UNMOUNT | IN_IGNORED)) !== 0;
  // Before the tree is live the event may be older than this watch, so the path is checked.
  if (isGone || mask & IN_MOVE_SELF) {
    if (tree.isLive || !isRooted()) tree.tellRoot(isGone ? 'remove' : 'rename');
  } else if (mask & IN_ATTRIB && isRooted()) {
    // rmdir(2) causes IN_ATTRIB, too, and is no change of attributes.
    tree.tell('chmod', directory, '.');
  }
}

function applyToEntry(tree: Tree, directory: Directory, { mask, name, cookie }: InotifyEvent): void {
  const isDirectory = (mask & IN_ISDIR) !== 0 && tree.recursive;
  // This event explains why there is an entry at the old name, so that no exchange is assumed.
  if (mask & (ARRIVALS | DEPARTURES)) directory.exchanges?.delete(name);
  if (mask & IN_CREATE) addEntry(tree, directory, name, isDirectory);
  if (mask & IN_MOVED_TO) applyArrival(tree, directory, name, isDirectory, cookie);
  if (mask & IN_MODIFY) tellUnlessUnnamed(tree, 'write', directory, name);
  if (mask & IN_CLOSE_WRITE) applyClose(tree, directory, name);
  if (mask & IN_ATTRIB) tellUnlessUnnamed(tree, 'chmod', directory, name);
  if (mask & IN_MOVED_FROM) {
    tree.tell('rename', directory, name);
    tree.startMove(cookie, directory, name);
  }
  if (mask & IN_DELETE) removeEntry(tree, directory, name);
}

function addEntry(tree: Tree, directory: Directory, name: BytePath, isDirectory: boolean): void {
  tree.forget(directory, name);
  tree.tell('create', directory, name);
  if (isDirectory) tree.addDirectory(directory, name);
}

function tellUnlessUnnamed(tree: Tree, type: 'write' | 'chmod', directory: Directory, name: BytePath): void {
  if (!UNNAMED.test(name) || tree.kindOf(directory, name)) tree.tell(type, directory, name);
}

/**
 * Reports a write when the file has changed after its last event and no event that is still queued explains that: it was
 * written through a shared mapping.
 */
function applyClose(tree: Tree, directory: Directory, name: BytePath): void {
  const { kernel } = tree;
  const { descriptor } = directory;
  if (descriptor === null) return;
  const { at, isWritten, changes } = kernel.recentChanges.of(descriptor, name);
  if (isWritten) return;
  if ((tree.modifiedMsOf(directory, name) ?? 0) <= Math.max(at, directory.surveyedMs)) return;
  tree.whenSettled(() => {
    if (kernel.recentChanges.of(descriptor, name).changes !== changes) return;
    if (tree.kindOf(directory, name)) tree.tell('write', directory, name);
  });
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
  tree.tell('create', directory, name, rename?.path);
  if (rename?.moved) settle(tree, rename.moved, directory, name);
  // If it was taken for a directory that had left the tree, it is reported as new, with all its entries.
  else if (isDirectory) tree.addDirectory(directory, name);
  if (rename && tree.isReverse(rename, directory.path(name))) {
    checkExchange(tree, rename, directory, name, isDirectory);
  }
}

/** Attaches a directory at its new path, and handles what has waited for that since IN_MOVED_FROM. */
function settle(tree: Tree, moved: Directory, directory: Directory, name: BytePath): void {
  moved.place(directory, name);
  const { moving } = moved;
  moved.moving = null;
  for (const each of moving?.unsurveyed ?? []) tree.unsurveyed.push(each);
  for (const [below, event] of moving?.events ?? []) applyEvent(tree, below, event);
}

/**
 * Reports an exchange if an entry exists at the old path and no other event explains it. The events up to now are awaited
 * before the file system is asked, because there may be many such renames and most of them are explained by an event.
 */
function checkExchange(
  tree: Tree,
  rename: Rename,
  directory: Directory,
  name: BytePath,
  isDirectory: boolean,
): void {
  rename.directory.exchanges ??= new Map();
  const candidates = rename.directory.exchanges.set(rename.name, rename);
  const isUnexplained = () => candidates.get(rename.name) === rename;
  tree.whenSettled(() => {
    if (!isUnexplained()) return;
    const other = tree.kindOf(rename.directory, rename.name);
    if (!other) {
      candidates.delete(rename.name);
      return;
    }
    tree.whenSettled(() => {
      if (!isUnexplained()) return;
      candidates.delete(rename.name);
      if (!tree.locate(directory) || !tree.locate(rename.directory)) return;
      if (isDirectory || directory.children.has(name)) {
        removeEntry(tree, directory, name);
        addEntry(tree, directory, name, isDirectory);
      }
      addEntry(tree, rename.directory, rename.name, other === 'directory' && tree.recursive);
    });
  });
}
