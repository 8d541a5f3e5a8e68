// The tree of the model on the disk: makes both, and compares them.
import {
  chmodSync,
  chownSync,
  closeSync,
  constants,
  lchownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { getAttributeSync, listAttributesSync, removeAttributeSync, setAttributeSync } from 'fs-xattr';
import {
  type Attributes,
  type Bytes,
  bytesOf,
  type Directory,
  type File,
  type Link,
  type Node,
  newDirectory,
} from './tree.ts';
import type { World } from './walk.ts';

/** A process whose links in /proc are part of the tree. */
export interface Helper {
  readonly pid: number;
  readonly uid: number;
  /** Names of the links in its directory, and what they refer to: paths below the base. */
  readonly links: Readonly<Record<'cwd' | `fd/${number}`, Bytes>>;
}

export interface Plant {
  readonly uid: number;
  readonly gid: number;
  readonly mode: number;
  readonly attributes: readonly (readonly [name: string, value: string])[];
}

/** The directory that the second file system is mounted at. */
export const SECOND = 'm';

/** An empty tree at `base`, whose own directories stay: `[name, owner]`. */
export class Disk {
  readonly world: World;
  readonly base: Bytes;
  readonly top: Directory;
  readonly #fixed: readonly (readonly [name: Bytes, uid: number])[];
  #inodes = new WeakMap<Node, bigint>();

  constructor(world: World, base: Bytes, fixed: readonly (readonly [Bytes, number])[]) {
    this.world = world;
    this.base = base;
    this.#fixed = fixed;
    this.top = ancestors(world.root, base);
    for (const [name] of fixed) mkdirSync(`${base}/${name}`);
  }

  /** Removes everything but the fixed directories, and the file `held`, which are as they were first. */
  reset(): void {
    this.top.entries.clear();
    this.#inodes = new WeakMap();
    for (const [name, uid] of this.#fixed) {
      const path = `${this.base}/${name}`;
      for (const below of readdirSync(path, 'buffer'))
        rmSync(Buffer.concat([Buffer.from(`${path}/`), below]), { recursive: true, force: true });
      chownSync(path, uid, uid);
      chmodSync(path, 0o755);
      const status = { uid, gid: uid, mode: 0o755, isSecond: name === SECOND };
      this.top.entries.set(name, newDirectory(this.top, status));
    }
    const held: File = {
      ...{ kind: 'file', uid: 0, gid: 0, mode: 0o600, content: 'held' },
      attributes: new Map(),
    };
    writeFileSync(`${this.base}/held`, 'held');
    for (const name of attributesOf(`${this.base}/held`).keys())
      removeAttributeSync(`${this.base}/held`, name);
    this.#own(Buffer.from(`${this.base}/held`), held, 0o600);
    this.top.entries.set('held', held);
  }

  /** Puts the links of a process in /proc into the tree. */
  addHelper(proc: Directory, { pid, uid, links }: Helper): void {
    const process = newDirectory(proc, { uid, gid: uid, mode: 0o555, isProc: true });
    const descriptors = newDirectory(process, { uid, gid: uid, mode: 0o500, isProc: true });
    process.entries.set('fd', descriptors);
    proc.entries.set(String(pid), process);
    for (const [name, path] of Object.entries(links)) {
      const link: Link = { kind: 'link', uid, gid: uid, target: '', jump: this.#find(path) };
      if (name.startsWith('fd/')) descriptors.entries.set(name.slice(3), link);
      else process.entries.set(name, link);
      if (lstatSync(`/proc/${pid}/${name}`).uid !== uid)
        throw new Error(`/proc/${pid}/${name} is another user's`);
    }
  }

  #find(path: Bytes): Node {
    let node: Node = this.top;
    for (const name of path.split('/').filter(Boolean)) {
      const next: Node | undefined = node.kind === 'directory' ? node.entries.get(name) : undefined;
      if (!next) throw new Error(`no ${path}`);
      node = next;
    }
    return node;
  }

  directory(parent: Directory, path: Bytes, name: Bytes, plant: Plant): Directory {
    const attributes = new Map(plant.attributes);
    const made = newDirectory(parent, { ...plant, attributes });
    mkdirSync(bytesOf(path));
    setAttributes(bytesOf(path), attributes);
    this.#own(bytesOf(path), made, plant.mode);
    parent.entries.set(name, made);
    return made;
  }

  file(parent: Directory, path: Bytes, name: Bytes, plant: Plant, content: string): void {
    const { uid, gid, mode } = plant;
    const attributes = new Map(plant.attributes);
    const made: File = { kind: 'file', uid, gid, mode, content, attributes };
    writeFileSync(bytesOf(path), content);
    setAttributes(bytesOf(path), attributes);
    this.#own(bytesOf(path), made, plant.mode);
    parent.entries.set(name, made);
  }

  hardLink(parent: Directory, path: Bytes, name: Bytes, existing: Bytes, file: File): void {
    linkSync(bytesOf(existing), bytesOf(path));
    parent.entries.set(name, file);
  }

  link(parent: Directory, path: Bytes, name: Bytes, { uid, gid }: Plant, target: Bytes): void {
    symlinkSync(bytesOf(target), bytesOf(path));
    lchownSync(bytesOf(path), uid, gid);
    parent.entries.set(name, { kind: 'link', uid, gid, target, jump: null });
  }

  /** Takes a new entry, and gives it its owner and mode. */
  owned(path: Bytes, node: Exclude<Node, Link>, parent: Directory, name: Bytes): void {
    this.#own(bytesOf(path), node, node.mode);
    parent.entries.set(name, node);
  }

  #own(path: Buffer, { uid, gid }: Node, mode: number): void {
    chownSync(path, uid, gid);
    chmodSync(path, mode);
  }

  /** What the model says is there, and what is there: by path. */
  both(): [expected: Record<Bytes, string>, found: Record<Bytes, string>] {
    const [expected, found]: Record<Bytes, string>[] = [{}, {}];
    if (!expected || !found) throw new Error('two were made');
    this.#compare(this.top, this.base, expected, found);
    return [expected, found];
  }

  #compare(
    directory: Directory,
    path: Bytes,
    expected: Record<Bytes, string>,
    found: Record<Bytes, string>,
  ): void {
    const names = readdirSync(bytesOf(path), 'latin1');
    for (const name of new Set([...directory.entries.keys(), ...names])) {
      const below = `${path}/${name}`;
      const node = directory.entries.get(name);
      if (node) expected[below] = describeNode(node);
      if (!names.includes(name)) continue;
      found[below] = this.#describeEntry(below, node);
      if (node?.kind === 'directory' && lstatSync(bytesOf(below)).isDirectory())
        this.#compare(node, below, expected, found);
    }
  }

  #describeEntry(path: Bytes, node: Node | undefined): string {
    const status = lstatSync(bytesOf(path), { bigint: true });
    const known = node && this.#inodes.get(node);
    if (node && known === undefined) this.#inodes.set(node, status.ino);
    const other = known === undefined || known === status.ino ? '' : ' another inode';
    return describeStatus(path, status) + other;
  }

  /** Removes from the model what is no longer on the disk below a directory; returns it. */
  *prune(directory: Directory, path: Bytes): Generator<[directory: Directory, name: Bytes, node: Node]> {
    const names = readdirSync(bytesOf(path), 'latin1');
    for (const [name, node] of directory.entries) {
      if (!names.includes(name)) yield [directory, name, node];
      else if (node.kind === 'directory') yield* this.prune(node, `${path}/${name}`);
    }
  }
}

/** The directories from the root to `path`, as they are on the disk. */
function ancestors(root: Directory, path: Bytes): Directory {
  let directory = root;
  let reached = '';
  for (const name of path.split('/').filter(Boolean)) {
    reached += `/${name}`;
    const { uid, gid, mode } = lstatSync(reached);
    const next = newDirectory(directory, { uid, gid, mode: mode & 0o7777 });
    directory.entries.set(name, next);
    directory = next;
  }
  return directory;
}

/** fs-xattr takes strings, and follows links. */
function withOpen<T>(path: Buffer | string, work: (link: string) => T): T {
  const descriptor = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    return work(`/proc/self/fd/${descriptor}`);
  } finally {
    closeSync(descriptor);
  }
}

function setAttributes(path: Buffer, attributes: Attributes): void {
  if (attributes.size === 0) return;
  withOpen(path, (link) => {
    for (const [name, value] of attributes) setAttributeSync(link, name, value);
  });
}

function attributesOf(path: Buffer | string): Attributes {
  return withOpen(path, (link) => {
    const names = listAttributesSync(link).filter((name) => name.startsWith('user.'));
    return new Map(names.map((name) => [name, getAttributeSync(link, name).toString()]));
  });
}

const listed = (attributes: Attributes): string =>
  [...attributes]
    .map(([name, value]) => ` ${name}=${value}`)
    .sort()
    .join('');

const octal = (mode: number | bigint) => (Number(mode) & 0o7777).toString(8);

function describeNode(node: Node): string {
  const own = `${node.uid}:${node.gid}`;
  if (node.kind === 'link') return `link ${own} ${node.target}`;
  const content = node.kind === 'file' ? ` ${node.content}` : '';
  const attributes = node.kind === 'fifo' ? '' : listed(node.attributes);
  return `${node.kind} ${own} ${octal(node.mode)}${content}${attributes}`;
}

function describeStatus(path: Bytes, status: ReturnType<typeof lstatSync> & object): string {
  const own = `${status.uid}:${status.gid}`;
  if (status.isSymbolicLink()) return `link ${own} ${readlinkSync(bytesOf(path), 'latin1')}`;
  const rest = `${own} ${octal(status.mode)}`;
  if (status.isFIFO()) return `fifo ${rest}`;
  const attributes = listed(attributesOf(bytesOf(path)));
  if (status.isFile()) return `file ${rest} ${readFileSync(bytesOf(path), 'latin1')}${attributes}`;
  return `directory ${rest}${attributes}`;
}
