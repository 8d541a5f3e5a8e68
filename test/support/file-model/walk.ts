// Path resolution as path_resolution(7) describes it, with the rights of rule 2: a link of root's is followed with the
// daemon's rights, a link of another user with that user's, and a link of a third user after that one not at all.
import {
  type Bytes,
  type Directory,
  type Groups,
  type Link,
  may,
  type Node,
  pathOf,
  type Rights,
  SEARCH,
} from './tree.ts';

export type Errno = 'EACCES' | 'ENOENT' | 'ENOTDIR' | 'ELOOP' | 'ENAMETOOLONG';

/** A name in a directory, as the daemon's `Place`. */
export interface Place {
  readonly directory: Directory;
  /** `.` for the directory itself. */
  readonly name: Bytes;
  /** Directories between `directory` and the name that do not exist. */
  readonly missing: readonly Bytes[];
  readonly rights: Rights;
  /** What the name refers to; null when nothing is there, and for names that were not looked up. */
  readonly node: Node | null;
}

export interface World {
  readonly root: Directory;
  readonly groups: Groups;
}

const LONGEST_PATH = 4095;
const LONGEST_NAME = 255;
const MOST_LINKS = 40;

type Failure = { readonly errno: Errno };
const fail = (errno: Errno): Failure => ({ errno });

export function isFailure(result: object): result is Failure {
  return 'errno' in result;
}

/** Resolves an absolute path; `follows`: a link at its end too. */
export function resolve(world: World, path: Bytes, follows: boolean): Place | Failure {
  if (path.length > LONGEST_PATH) return fail('ENAMETOOLONG');
  return new Walk(world, { directory: world.root, rest: path, rights: null, follows }).end();
}

/** What a link in a directory refers to; `rights`: those that the directory was reached with. */
export function resolveLink(
  world: World,
  directory: Directory,
  name: Bytes,
  rights: Rights,
): Place | Failure {
  return new Walk(world, { directory, rest: name, rights, follows: true }).end();
}

interface Start {
  readonly directory: Directory;
  readonly rest: Bytes;
  readonly rights: Rights;
  readonly follows: boolean;
}

class Walk {
  readonly #world: World;
  readonly #follows: boolean;
  #directory: Directory;
  #rest: Bytes;
  #rights: Rights;
  #links = 0;

  constructor(world: World, { directory, rest, rights, follows }: Start) {
    this.#world = world;
    this.#follows = follows;
    this.#directory = directory;
    this.#rest = rest;
    this.#rights = rights;
  }

  end(): Place | Failure {
    for (;;) {
      const result = this.#step();
      if (result) return result;
    }
  }

  /** Takes one part of the path; null when there are more. */
  #step(): Place | Failure | null {
    const [, name = '', rest = ''] = /^\/*([^/]*)(.*)$/s.exec(this.#rest) ?? [];
    if (name.length > LONGEST_NAME) return fail('ENAMETOOLONG');
    this.#rest = rest;
    const isLast = rest === '';
    if (name === '' || name === '.') return isLast ? this.#at('.', this.#directory) : null;
    if (name === '..') return this.#up(isLast);
    return isLast && !this.#follows ? this.#at(name, null) : this.#into(name, isLast);
  }

  #into(name: Bytes, isLast: boolean): Place | Failure | null {
    if (!this.#maySearch()) return fail('EACCES');
    const node = this.#directory.entries.get(name);
    if (!node) return isLast ? this.#at(name, null) : this.#missing(name);
    if (node.kind === 'link') return this.#follow(node, name, isLast);
    if (isLast) return this.#at(name, node);
    if (node.kind !== 'directory') return fail('ENOTDIR');
    this.#directory = node;
    return null;
  }

  #maySearch(): boolean {
    return may(this.#rights, SEARCH, this.#directory, this.#world.groups);
  }

  #at(name: Bytes, node: Node | null, missing: readonly Bytes[] = []): Place {
    return { directory: this.#directory, name, missing, rights: this.#rights, node };
  }

  #up(isLast: boolean): Place | Failure | null {
    if (!this.#maySearch()) return fail('EACCES');
    this.#directory = this.#directory.parent;
    return isLast ? this.#at('.', this.#directory) : null;
  }

  #missing(first: Bytes): Place | Failure {
    const names = [first, ...this.#rest.split('/').filter((name) => name !== '')];
    for (const name of names) {
      if (name.length > LONGEST_NAME) return fail('ENAMETOOLONG');
      if (name === '.' || name === '..') return fail('ENOENT');
    }
    // A directory that is missing cannot be the file itself.
    if (this.#rest.endsWith('/')) return fail('ENOENT');
    return this.#at(names.at(-1) ?? '', null, names.slice(0, -1));
  }

  #follow(link: Link, name: Bytes, isLast: boolean): Place | Failure | null {
    this.#links += 1;
    if (this.#links > MOST_LINKS) return fail('ELOOP');
    if (link.uid !== 0 && link.uid !== this.#rights) {
      if (this.#rights !== null) return fail('EACCES');
      this.#rights = link.uid;
    }
    if (link.jump && this.#rights === null) return this.#jump(link.jump, name, isLast);
    const target = this.#textOf(link);
    if (target === null) return fail('EACCES');
    // A limit of the daemon, which the kernel does not have: a target and the rest of the path fit in one path.
    if (target.length + this.#rest.length > LONGEST_PATH) return fail('ENAMETOOLONG');
    this.#rest = target + this.#rest;
    if (target.startsWith('/')) this.#directory = this.#world.root;
    return null;
  }

  /** The kernel shows a magic link to the process itself and to its owner alone: ptrace(2), access mode checking. */
  #textOf(link: Link): Bytes | null {
    if (link.jump === null || link.target !== '') return link.target;
    return link.uid === this.#rights ? pathOf(link.jump, this.#world.root) : null;
  }

  #jump(node: Node, name: Bytes, isLast: boolean): Place | Failure | null {
    if (isLast) return this.#at(name, node);
    if (node.kind !== 'directory') return fail('ENOTDIR');
    this.#directory = node;
    return null;
  }
}
