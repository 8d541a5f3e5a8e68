// Makes the random trees and paths.

import { execFileSync } from 'node:child_process';
import { encodeName } from '../../../src/daemon/linux/paths/names.ts';
import type { PathSpec, PlantSpec } from './arbitraries.ts';
import { type Disk, SECOND } from './disk.ts';
import { type Bytes, type Directory, type Node, walkTree } from './tree.ts';

/** The processes whose links in /proc lead into the tree. */
export interface Pids {
  readonly root: number;
  readonly ada: number;
}

const LONGEST_TARGET = 4095;
/** Links in the middle of a chain; paths begin at its end. */
const INNER = /\/k(?!(?:1|38|39|40)$)\d+$/;

export class Garden {
  readonly #disk: Disk;
  readonly #pids: Pids;

  readonly #addProc: () => void;

  /** `addProc` puts the links of the processes into the tree. */
  constructor(disk: Disk, pids: Pids, addProc: () => void) {
    this.#disk = disk;
    this.#pids = pids;
    this.#addProc = addProc;
  }

  /** Makes a new tree. */
  grow(plants: readonly PlantSpec[]): void {
    this.#disk.reset();
    this.#addProc();
    for (const plant of plants) this.#plant(plant);
  }

  /** All paths of the tree, its top excluded. */
  #paths(): [Bytes, Node][] {
    const { top, base } = this.#disk;
    return [...walkTree(top, base)].slice(1).filter(([path]) => !INNER.test(path));
  }

  /** A path as a client sends it, and as the daemon takes it: normalised. */
  clientPath(spec: PathSpec): { sent: string; path: Bytes } {
    const whole = fillWithNames(this.#text(spec, null), spec.length);
    const sent = encodeName(Buffer.from(whole, 'latin1'));
    return { sent, path: normalised(whole) };
  }

  #text({ start, tail, by, end, noise }: PathSpec, from: Bytes | null): Bytes {
    const { base } = this.#disk;
    const paths = this.#paths().map(([path]) => path);
    const node = start === null ? `${base}/r` : (paths[start % paths.length] ?? base);
    const begin = {
      itself: node,
      'self root': `/proc/self/root${node}`,
      'cwd of root': `/proc/${this.#pids.root}/cwd`,
      'cwd of ada': `/proc/${this.#pids.ada}/cwd`,
      'fd of root': `/proc/${this.#pids.root}/fd/3`,
      held: `/proc/${this.#pids.root}/fd/4`,
      relative: from === null ? node : relative(base, from, node),
    }[by];
    return withNoise([begin, ...tail].join('/') + end, noise);
  }

  #plant(spec: PlantSpec): void {
    const directories = this.#paths().filter(([, node]) => node.kind === 'directory');
    const [path, parent] = directories[spec.where % directories.length] ?? [];
    if (path === undefined || parent?.kind !== 'directory') return;
    if (spec.kind === 'chain') this.#chain(parent, path, spec);
    else if (!parent.entries.has(spec.name)) this.#plantOne(parent, path, spec);
  }

  #plantOne(parent: Directory, directory: Bytes, spec: PlantSpec): void {
    const path = `${directory}/${spec.name}`;
    if (spec.kind === 'directory') this.#disk.directory(parent, path, spec.name, spec);
    if (spec.kind === 'file') this.#disk.file(parent, path, spec.name, spec, `of ${spec.uid} ${path.length}`);
    if (spec.kind === 'link') this.#disk.link(parent, path, spec.name, spec, this.#target(spec, directory));
    if (spec.kind === 'fifo') this.#fifo(parent, path, spec);
    if (spec.kind === 'hard link') this.#hardLink(parent, path, spec);
  }

  #fifo(parent: Directory, path: Bytes, { name, uid, gid, mode }: PlantSpec): void {
    if (/[^\x20-\x7e]/.test(path)) return;
    execFileSync('mkfifo', [path]);
    this.#disk.owned(path, { kind: 'fifo', uid, gid, mode }, parent, name);
  }

  #hardLink(parent: Directory, path: Bytes, { name, where }: PlantSpec): void {
    const second = `${this.#disk.base}/${SECOND}/`;
    const files = this.#paths().filter(
      ([existing, node]) => node.kind === 'file' && existing.startsWith(second) === parent.isSecond,
    );
    const [existing, file] = files[where % files.length] ?? [];
    if (existing !== undefined && file?.kind === 'file')
      this.#disk.hardLink(parent, path, name, existing, file);
  }

  #chain(parent: Directory, directory: Bytes, spec: PlantSpec): void {
    if (parent.entries.has('k0')) return;
    for (let index = 0; index < spec.links; index++) {
      const name = `k${index}`;
      const target = index === 0 ? this.#target(spec, directory) : `k${index - 1}`;
      this.#disk.link(parent, `${directory}/${name}`, name, spec, target);
    }
  }

  #target({ target }: PlantSpec, directory: Bytes): Bytes {
    const text = this.#text(target, directory) || '.';
    if (target.length === null) return text.slice(0, LONGEST_TARGET);
    return fillWithSlashes(text, Math.min(target.length, LONGEST_TARGET));
  }
}

function relative(base: Bytes, from: Bytes, to: Bytes): Bytes {
  const depth = from.slice(base.length).split('/').filter(Boolean).length;
  return `${'../'.repeat(depth)}${to.slice(base.length + 1)}`;
}

/** Puts `//`, `/./` or `/zz/../` for one of the slashes. */
function withNoise(path: Bytes, noise: number): Bytes {
  if (noise === 0) return path;
  const slashes = [...path.matchAll(/\//g)].map(({ index }) => index);
  const at = slashes[noise % slashes.length];
  const instead = ['//', '/./', '/zz/../'][(noise >> 4) % 3];
  return at === undefined ? path : `${path.slice(0, at)}${instead}${path.slice(at + 1)}`;
}

function fillWithSlashes(path: Bytes, length: number): Bytes {
  const missing = length - path.length;
  if (missing <= 2) return path;
  return path.startsWith('/') ? '/'.repeat(missing) + path : `.${'/'.repeat(missing - 1)}${path}`;
}

function fillWithNames(path: Bytes, length: number | null): Bytes {
  let whole = normalised(path);
  if (length === null) return path;
  while (length - whole.length > 1) {
    // Not one byte too few for a slash and a name.
    const next = Math.min(255, length - whole.length - 1);
    const name = length - whole.length - 1 - next === 1 ? next - 1 : next;
    whole += `/${'p'.repeat(name)}`;
  }
  return whole;
}

/** As the daemon does before it looks at the disk. */
function normalised(path: Bytes): Bytes {
  const names: Bytes[] = [];
  for (const name of path.split('/')) {
    if (name === '..') names.pop();
    else if (name !== '' && name !== '.') names.push(name);
  }
  return `/${names.join('/')}`;
}
