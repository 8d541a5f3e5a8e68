// What each operation must answer, and how it changes the tree. Where the answer is an error, nothing changes, except
// missing parents that were made before.
import { encodeName } from '../../../src/daemon/linux/paths/names.ts';
import { METADATA } from './arbitraries.ts';
import {
  type Attributes,
  type Bytes,
  type Directory,
  type File,
  groupsOf,
  may,
  mayChange,
  type Node,
  newDirectory,
  READ,
  type Rights,
  SEARCH,
  SET_GROUP_ID,
  WRITE,
} from './tree.ts';
import { type Errno, isFailure, type Place, resolve, resolveLink, type World } from './walk.ts';

export type Code =
  | 'ok'
  | 'not_found'
  | 'invalid_argument'
  | 'already_exists'
  | 'failed_precondition'
  | 'permission_denied';

/** The user of a call. */
export interface Caller {
  readonly uid: number;
  readonly gid: number;
}

const MEANINGS: Readonly<Record<Errno, Code>> = {
  EACCES: 'permission_denied',
  ENOENT: 'not_found',
  ENOTDIR: 'not_found',
  ELOOP: 'failed_precondition',
  ENAMETOOLONG: 'invalid_argument',
};

const find = (errno: Errno): Code => MEANINGS[errno];
/** For operations that make the path. */
const make = (errno: Errno): Code => (errno === 'ENOTDIR' ? 'invalid_argument' : MEANINGS[errno]);

/** The entry of a place that was resolved without its last link. */
function entryOf({ directory, name, missing }: Place): Node | null {
  if (missing.length > 0) return null;
  return name === '.' ? directory : (directory.entries.get(name) ?? null);
}

/** Makes directories as the caller, or as the owner of the link that led here. */
function makeDirectories(world: World, place: Place, names: readonly Bytes[], caller: Caller) {
  let { directory } = place;
  let isNew = false;
  for (const name of names) {
    if (!may(place.rights, SEARCH, directory, world.groups)) return 'EACCES';
    const existing = directory.entries.get(name);
    if (existing && existing.kind !== 'directory') return 'ENOTDIR';
    isNew = !existing;
    if (!existing && !may(place.rights, WRITE, directory, world.groups)) return 'EACCES';
    const made = existing ?? directoryBy(world, place, directory, caller);
    directory.entries.set(name, made);
    directory = made;
  }
  return { directory, isNew };
}

function directoryBy(world: World, { rights }: Place, parent: Directory, caller: Caller): Directory {
  if (rights === null) return newDirectory(parent, { ...caller, mode: 0o755 });
  const inherits = (parent.mode & SET_GROUP_ID) !== 0;
  const [own = 0] = groupsOf(world.groups, rights);
  const gid = inherits ? parent.gid : own;
  return newDirectory(parent, { uid: rights, gid, mode: inherits ? 0o2755 : 0o755 });
}

export function makeDir(world: World, path: Bytes, caller: Caller): Code {
  const place = resolve(world, path, false);
  if (isFailure(place)) return make(place.errno);
  const made = makeDirectories(world, place, [...place.missing, place.name], caller);
  if (typeof made === 'object') return made.isNew ? 'ok' : 'already_exists';
  if (made === 'EACCES') return 'permission_denied';
  const target = resolve(world, path, true);
  return !isFailure(target) && target.node?.kind === 'directory' ? 'already_exists' : 'invalid_argument';
}

/** The regular file at a path, all links followed, and with whose rights; or the code. */
function fileAt(world: World, path: Bytes): { node: File; place: Place } | Code {
  const place = resolve(world, path, true);
  if (isFailure(place)) return find(place.errno);
  const { node } = place;
  if (!node) return 'not_found';
  // Whatever the rights: who may go there may look at it.
  return node.kind === 'file' ? { node, place } : 'invalid_argument';
}

/** Whether `.` may be looked up; other names were, when they were resolved. */
function mayLookUp(world: World, { name, rights, directory }: Place): boolean {
  return name !== '.' || may(rights, SEARCH, directory, world.groups);
}

export function download(world: World, path: Bytes): Code | { content: string } {
  const found = fileAt(world, path);
  if (typeof found === 'string') return found;
  const { node, place } = found;
  return may(place.rights, READ, node, world.groups) ? { content: node.content } : 'permission_denied';
}

export function watch(world: World, path: Bytes): Code {
  const place = resolve(world, path, true);
  if (isFailure(place)) return find(place.errno);
  const { node, rights } = place;
  if (!node) return 'not_found';
  if (!mayLookUp(world, place)) return 'permission_denied';
  if (node.kind !== 'directory') return 'invalid_argument';
  return may(rights, READ, node, world.groups) ? 'ok' : 'permission_denied';
}

/** What Stat and ListDir say of an entry. */
export interface Described {
  readonly name: string;
  readonly type: 'FILE_TYPE_FILE' | 'FILE_TYPE_DIRECTORY' | 'FILE_TYPE_UNSPECIFIED';
  readonly mode: number;
  readonly metadata: Readonly<Record<string, string>>;
}

const UNKNOWN = { type: 'FILE_TYPE_UNSPECIFIED', mode: 0, metadata: {} } as const;

function typeOf(
  world: World,
  node: Exclude<Node, { kind: 'link' }>,
  rights: Rights,
): Omit<Described, 'name'> {
  const mode = node.mode & 0o777;
  if (node.kind === 'fifo') return { ...UNKNOWN, mode };
  const type = `FILE_TYPE_${node.kind.toUpperCase()}` as Described['type'];
  return { type, mode, metadata: may(rights, READ, node, world.groups) ? metadataOf(node.attributes) : {} };
}

function metadataOf(attributes: Attributes): Described['metadata'] {
  const own = [...attributes].filter(([name]) => name.startsWith(METADATA));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(METADATA.length), value]));
}

/** The attributes with other metadata. */
function replaced(attributes: Attributes, metadata: Described['metadata']): Attributes {
  const others = [...attributes].filter(([name]) => !name.startsWith(METADATA));
  const sent = Object.entries(metadata).map(([key, value]) => [METADATA + key, value] as const);
  return new Map([...others, ...sent]);
}

function describe(world: World, directory: Directory, name: Bytes, node: Node, rights: Rights): Described {
  const shown = encodeName(Buffer.from(name, 'latin1'));
  if (node.kind !== 'link') return { name: shown, ...typeOf(world, node, rights) };
  const target = resolveLink(world, directory, name, rights);
  const isReached = !isFailure(target) && mayLookUp(world, target);
  const reached = isReached ? target.node : null;
  if (!isReached || !reached || reached.kind === 'link') return { name: shown, ...UNKNOWN };
  return { name: shown, ...typeOf(world, reached, target.rights) };
}

export function stat(world: World, path: Bytes): Code | Described {
  const place = resolve(world, path, false);
  if (isFailure(place)) return find(place.errno);
  if (place.missing.length > 0) return 'not_found';
  if (!may(place.rights, SEARCH, place.directory, world.groups)) return 'permission_denied';
  const node = entryOf(place);
  return node ? describe(world, place.directory, place.name, node, place.rights) : 'not_found';
}

/** The entries of a directory, sorted by the bytes of the names. */
export function listDir(world: World, path: Bytes): Code | Described[] {
  const place = resolve(world, path, true);
  if (isFailure(place) && place.errno === 'ENOTDIR') {
    const own = resolve(world, path, false);
    return !isFailure(own) && entryOf(own) ? 'invalid_argument' : 'not_found';
  }
  const code = watch(world, path);
  if (code !== 'ok') return code;
  if (isFailure(place) || place.node?.kind !== 'directory') throw new Error('not a directory');
  const { node: directory, rights } = place;
  const { entries } = directory;
  const maySearch = may(place.rights, SEARCH, place.node, world.groups);
  return [...entries.keys()].sort().map((name) => {
    const node = entries.get(name);
    if (!node || !maySearch) return { name: encodeName(Buffer.from(name, 'latin1')), ...UNKNOWN };
    return describe(world, directory, name, node, rights);
  });
}

/** Whether the rights allow to remove an entry and everything below it. */
export function isRemovable(world: World, { rights }: Place, directory: Directory, name: Bytes): boolean {
  if (!mayChange(rights, directory, name, world.groups)) return false;
  const node = directory.entries.get(name);
  if (node?.kind !== 'directory' || rights === null) return true;
  if (!may(rights, READ, node, world.groups)) return false;
  return [...node.entries.keys()].every((below) => isRemovable(world, { rights } as Place, node, below));
}

/** Only what the rights allow is removed: after a refusal, some of it may be gone. */
export function remove(world: World, path: Bytes): Code | { partlyBelow: Place } {
  const place = resolve(world, path, false);
  if (isFailure(place)) return find(place.errno) === 'not_found' ? 'ok' : find(place.errno);
  if (place.missing.length > 0) return 'ok';
  if (!may(place.rights, SEARCH, place.directory, world.groups)) return 'permission_denied';
  if (!entryOf(place)) return 'ok';
  if (!isRemovable(world, place, place.directory, place.name)) return { partlyBelow: place };
  place.directory.entries.delete(place.name);
  return 'ok';
}

export interface Sent {
  readonly content: string;
  readonly metadata: Described['metadata'];
}

export function upload(world: World, path: Bytes, caller: Caller, sent: Sent): Code {
  const place = resolve(world, path, true);
  if (isFailure(place)) return make(place.errno);
  const { node, rights } = place;
  if (node?.kind === 'directory') return 'invalid_argument';
  if (!node) return createFile(world, place, caller, sent);
  if (node.kind === 'link' || !may(rights, WRITE, node, world.groups)) return 'permission_denied';
  // Nobody reads from it.
  if (node.kind === 'fifo') return 'failed_precondition';
  node.content = sent.content;
  node.attributes = replaced(node.attributes, sent.metadata);
  node.mode &= 0o1777;
  // Through a user's link, and written in place behind a magic link, a file keeps its owner.
  if (rights === null && !place.directory.isProc) Object.assign(node, caller);
  return 'ok';
}

function createFile(world: World, place: Place, caller: Caller, sent: Sent, mode = 0o644): Code {
  if (place.missing.length === 0 && !mayChange(place.rights, place.directory, place.name, world.groups))
    return 'permission_denied';
  const parents = makeDirectories(world, place, place.missing, caller);
  if (typeof parents === 'string') return make(parents);
  const { content, metadata } = sent;
  const attributes = replaced(new Map(), metadata);
  const file: File = { kind: 'file', uid: caller.uid, gid: caller.gid, mode, content, attributes };
  parents.directory.entries.set(place.name, file);
  return 'ok';
}

export function compose(world: World, paths: readonly Bytes[], to: Bytes, caller: Caller): Code {
  const sources: { path: Bytes; node: File; place: Place }[] = [];
  for (const path of paths) {
    const source = composeSource(world, path);
    if (typeof source === 'string') return source;
    sources.push({ path, ...source });
  }
  const place = resolve(world, to, true);
  if (isFailure(place)) return make(place.errno);
  if (place.node && place.node.kind !== 'file') return 'invalid_argument';
  if (sources.some(({ node }) => node === place.node)) return 'invalid_argument';
  if (!sources.every(({ node, place: from }) => may(from.rights, READ, node, world.groups)))
    return 'permission_denied';
  const content = sources.map(({ node }) => node.content).join('');
  const mode = place.node ? place.node.mode & 0o777 : 0o644;
  const code = createFile(world, place, caller, { content, metadata: {} }, mode);
  if (code === 'ok') for (const { path, node } of sources) removeSource(world, path, node);
  return code;
}

/** A source must be readable, and removable, since it is removed at the end. */
function composeSource(world: World, path: Bytes): { node: File; place: Place } | Code {
  const found = fileAt(world, path);
  if (typeof found === 'string') return found;
  const link = resolve(world, path, false);
  if (isFailure(link)) throw new Error('resolved further before');
  const mayRemove = mayChange(link.rights, link.directory, link.name, world.groups);
  return mayRemove ? found : 'permission_denied';
}

function removeSource(world: World, path: Bytes, node: File): void {
  const now = resolve(world, path, true);
  const link = resolve(world, path, false);
  if (!isFailure(now) && now.node === node && !isFailure(link)) link.directory.entries.delete(link.name);
}

export function move(world: World, source: Bytes, destination: Bytes, caller: Caller): Code {
  const from = resolve(world, source, false);
  if (isFailure(from)) return find(from.errno);
  const node = entryOf(from);
  const isHidden = from.missing.length === 0 && !may(from.rights, SEARCH, from.directory, world.groups);
  if (isHidden) return 'permission_denied';
  if (!node) return 'not_found';
  if (!mayChange(from.rights, from.directory, from.name, world.groups)) return 'permission_denied';
  const to = resolve(world, destination, false);
  if (isFailure(to)) return make(to.errno);
  const parents = makeDirectories(world, to, to.missing, caller);
  if (typeof parents === 'string') return make(parents);
  if (!mayChange(to.rights, parents.directory, to.name, world.groups)) return 'permission_denied';
  // Its `..` changes: rename(2), EACCES. The daemon asks for search permission too.
  const isMovedAway = node.kind === 'directory' && parents.directory !== from.directory;
  if (isMovedAway && !may(from.rights, WRITE | SEARCH, node, world.groups)) return 'permission_denied';
  const isAcross = from.directory.isSecond !== parents.directory.isSecond;
  const moved = isAcross ? copyOf(node, parents.directory, new Map()) : node;
  return moved === null ? 'failed_precondition' : rename(from, moved, parents.directory, to.name);
}

/**
 * What is moved to another file system: without set-id bits that grant rights, hard links only to each other; null when
 * there is a fifo in it.
 */
function copyOf(node: Node, parent: Directory, copied: Map<File, File>): Node | null {
  if (node.kind === 'fifo') return null;
  if (node.kind === 'link') return { ...node };
  if (node.kind === 'file') {
    const copy = copied.get(node) ?? { ...node, mode: node.mode & 0o1777 };
    copied.set(node, copy);
    return copy;
  }
  const { uid, gid, mode, attributes } = node;
  const made = newDirectory(parent, { uid, gid, mode: mode & 0o3777, attributes });
  for (const [name, entry] of node.entries) {
    const copy = copyOf(entry, made, copied);
    if (copy === null) return null;
    made.entries.set(name, copy);
  }
  return made;
}

/** rename(2). */
function rename(from: Place, node: Node, directory: Directory, name: Bytes): Code {
  if (node.kind === 'directory' && isBelow(directory, node)) return 'invalid_argument';
  const replaced = directory.entries.get(name);
  if (replaced?.kind === 'directory' && isBelow(from.directory, replaced)) return 'already_exists';
  if (replaced === node) return 'ok';
  if (replaced && (replaced.kind === 'directory') !== (node.kind === 'directory')) return 'invalid_argument';
  if (replaced?.kind === 'directory' && replaced.entries.size > 0) return 'already_exists';
  from.directory.entries.delete(from.name);
  directory.entries.set(name, node);
  if (node.kind === 'directory') node.parent = directory;
  return 'ok';
}

function isBelow(directory: Directory, above: Directory): boolean {
  for (let each = directory; ; each = each.parent) {
    if (each === above) return true;
    if (each.parent === each) return false;
  }
}
