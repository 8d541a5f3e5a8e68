// A tree of files as data, and who may do what with its parts. Sources: inode(7), path_resolution(7), credentials(7).

/** A name or path as bytes, one character per byte: names need not be UTF-8. */
export type Bytes = string;

/** Extended attributes `user.*`, by name. */
export type Attributes = ReadonlyMap<string, string>;

export interface Directory {
  readonly kind: 'directory';
  uid: number;
  gid: number;
  mode: number;
  readonly attributes: Attributes;
  /** The root is its own parent. */
  parent: Directory;
  readonly entries: Map<Bytes, Node>;
  /** Whether it is part of /proc. */
  readonly isProc: boolean;
  /** Whether it is on the second file system. */
  readonly isSecond: boolean;
}

export interface File {
  readonly kind: 'file';
  uid: number;
  gid: number;
  mode: number;
  attributes: Attributes;
  content: string;
}

export interface Fifo {
  readonly kind: 'fifo';
  uid: number;
  gid: number;
  mode: number;
}

export interface Link {
  readonly kind: 'link';
  uid: number;
  gid: number;
  /** Empty for magic links whose text is the path of what they refer to. */
  readonly target: Bytes;
  /** What a magic link of /proc refers to; null for all other links. */
  readonly jump: Node | null;
}

export type Node = Directory | File | Fifo | Link;

/** Whose rights are used: a user's, or null, the daemon's. */
export type Rights = number | null;

/** Groups by user, the primary one first. */
export type Groups = ReadonlyMap<number, readonly number[]>;

export const [READ, WRITE, SEARCH] = [4, 2, 1];
const STICKY = 0o1000;
export const SET_GROUP_ID = 0o2000;

interface Status {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
  readonly attributes?: Attributes;
  readonly isProc?: boolean;
  readonly isSecond?: boolean;
}

export function newDirectory(parent: Directory | null, status: Status): Directory {
  const { uid, gid, mode, attributes = new Map(), isProc = false } = status;
  const isSecond = status.isSecond ?? parent?.isSecond ?? false;
  const entries = new Map<Bytes, Node>();
  const directory = { kind: 'directory' as const, uid, gid, mode, attributes, entries, isProc, isSecond };
  const self: Directory = Object.assign(directory, { parent: directory as unknown as Directory });
  if (parent) self.parent = parent;
  return self;
}

export function groupsOf(groups: Groups, uid: number): readonly number[] {
  const found = groups.get(uid);
  if (!found) throw new Error(`the model does not know the groups of ${uid}`);
  return found;
}

/** Whether the rights allow all of `wanted` on the node. */
export function may(rights: Rights, wanted: number, node: Exclude<Node, Link>, groups: Groups): boolean {
  if (rights === null) return true;
  const isInGroup = groupsOf(groups, rights).includes(node.gid);
  const shift = node.uid === rights ? 6 : isInGroup ? 3 : 0;
  return ((node.mode >> shift) & wanted) === wanted;
}

/** Whether the rights allow to create, replace or remove the name: unlink(2), EACCES and EPERM. */
export function mayChange(rights: Rights, directory: Directory, name: Bytes, groups: Groups): boolean {
  if (rights === null) return true;
  if (!may(rights, WRITE | SEARCH, directory, groups)) return false;
  const entry = directory.entries.get(name);
  return !(directory.mode & STICKY) || !entry || directory.uid === rights || entry.uid === rights;
}

/** The path of a directory, or of the first name of another node. */
export function pathOf(node: Node, root: Directory): Bytes {
  for (const [path, each] of walkTree(root, '')) if (each === node) return path || '/';
  throw new Error('the node is not in the tree');
}

/** All nodes below a directory, outside of /proc, with their paths; parents first. */
export function* walkTree(directory: Directory, path: Bytes): Generator<[path: Bytes, node: Node]> {
  yield [path, directory];
  for (const [name, node] of directory.entries) {
    if (node.kind !== 'directory') yield [`${path}/${name}`, node];
    else if (!node.isProc) yield* walkTree(node, `${path}/${name}`);
  }
}

export const bytesOf = (path: Bytes): Buffer => Buffer.from(path, 'latin1');
