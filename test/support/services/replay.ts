import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { WatchEvent } from '../../../src/daemon/services/watch/local/event.ts';

interface Node {
  readonly children: Map<string, Node>;
}

/** How many events are told with a fault. */
const RECENT = 30;

/** A tree of names that is updated by the events of a watch, as a client would do. */
export class Replay {
  readonly #directory: string;
  #root: Node;
  readonly #renamed = new Map<string, Node | null>();
  /** Inconsistent events: an entry made twice, an unknown one removed. Each comes with the events before it. */
  readonly faults: string[] = [];
  readonly #recent: string[] = [];
  rescans = 0;

  /** Starts with the content of `directory`. */
  constructor(directory: string) {
    this.#directory = directory;
    this.#root = read(directory);
  }

  apply(events: readonly WatchEvent[]): void {
    for (const event of events) {
      const { type, name, movedFrom } = event;
      this.#recent.push(movedFrom === null ? `${type} ${name}` : `${type} ${name} from ${movedFrom}`);
      if (this.#recent.length > RECENT) this.#recent.shift();
      this.#apply(event);
    }
  }

  /** Relative paths of all entries, sorted. */
  paths(): string[] {
    return list(this.#root, '').sort();
  }

  #apply({ type, name, movedFrom }: WatchEvent): void {
    if (type === 'rescan') {
      this.rescans++;
      this.#root = read(this.#directory);
    } else if (type === 'create') this.#create(name, movedFrom);
    else if (type === 'remove') this.#take(type, name);
    else if (type === 'rename') this.#renamed.set(name, this.#take(type, name));
    else if (name !== '.' && !this.#find(name)) this.#fault(`${type} of unknown ${name}`);
  }

  #create(name: string, movedFrom: string | null): void {
    const [parent, last] = this.#place(name);
    const moved = movedFrom === null ? null : this.#renamed.get(movedFrom);
    if (!parent) this.#fault(`create below unknown: ${name}`);
    // A rename from an unwatched directory may replace a file, or an empty directory.
    if ((parent?.children.get(last)?.children.size ?? 0) > 0) this.#fault(`create twice: ${name}`);
    parent?.children.set(last, moved ?? { children: new Map() });
  }

  #take(type: string, name: string): Node | null {
    const [parent, last] = this.#place(name);
    const node = parent?.children.get(last);
    if (!node) this.#fault(`${type} of unknown ${name}`);
    parent?.children.delete(last);
    return node ?? null;
  }

  #fault(text: string): void {
    this.faults.push(`${text}, in: ${this.#recent.join(', ')}`);
  }

  #find(name: string): Node | undefined {
    const [parent, last] = this.#place(name);
    return parent?.children.get(last);
  }

  #place(name: string): [Node | undefined, string] {
    const parts = name.split('/');
    const last = parts.pop() ?? '';
    let node: Node | undefined = this.#root;
    for (const part of parts) node = node?.children.get(part);
    return [node, last];
  }
}

/** Relative paths of all entries below `directory`, sorted. */
export function pathsOf(directory: string): string[] {
  return list(read(directory), '').sort();
}

function list(node: Node, prefix: string): string[] {
  return [...node.children].flatMap(([name, child]) => [prefix + name, ...list(child, `${prefix}${name}/`)]);
}

function read(path: string): Node {
  const children = new Map<string, Node>();
  try {
    if (!lstatSync(path).isDirectory()) return { children };
    for (const name of readdirSync(path)) children.set(name, read(join(path, name)));
  } catch {
    // Removed meanwhile: an event reports it.
  }
  return { children };
}
