import { Observable } from '../state/observable.ts';
import { callErrorOf } from '../wire/call-error.ts';
import type { DaemonClient } from '../wire/daemon-client.ts';
import type { EntryMessage } from '../wire/messages.ts';
import { byName, directoriesTo, entryOf } from './file-entry.ts';

/** A directory of the tree. */
export interface TreeDirectory {
  readonly path: string;
  readonly name: string;
  readonly depth: number;
  readonly isOpen: boolean;
}

/** Most directories below one that the tree shows. */
const MOST = 500;

/** The directories that were opened, each with those below it. */
export class DirectoryTree {
  readonly rows = new Observable<readonly TreeDirectory[]>([]);
  readonly #daemon: DaemonClient;
  /** The names of the directories below each one that is open. */
  readonly #open = new Map<string, readonly string[]>();

  constructor(daemon: DaemonClient) {
    this.#daemon = daemon;
  }

  /** Opens what leads to a directory, which is then shown even if it is new, or one of too many. */
  async reveal(path: string): Promise<void> {
    const way = directoriesTo(path);
    for (const [index, directory] of way.slice(0, -1).entries()) {
      const next = way[index + 1] as string;
      if (!this.#open.get(directory)?.includes(next)) await this.#load(directory);
      const below = this.#open.get(directory) ?? [];
      if (!below.includes(next)) this.#open.set(directory, [...below, next].sort());
    }
    this.#show();
  }

  /** Opens a directory, or closes it. */
  async toggle(path: string): Promise<void> {
    if (!this.#open.delete(path)) await this.#load(path);
    this.#show();
  }

  async #load(path: string): Promise<void> {
    const message = { path, depth: 1 };
    const { entries = [] } = await this.#daemon
      .unary<{ entries?: EntryMessage[] }>('filesystem.Filesystem/ListDir', message)
      .catch((error: unknown) => {
        // What cannot be read is shown as empty; the table says why.
        callErrorOf(error);
        return { entries: [] };
      });
    const directories = entries
      .map((entry) => entryOf(path, entry))
      .filter(({ kind, isLink }) => kind === 'directory' && !isLink);
    this.#open.set(
      path,
      directories
        .sort(byName)
        .slice(0, MOST)
        .map((entry) => entry.path),
    );
  }

  #show(): void {
    const rows: TreeDirectory[] = [];
    const add = (path: string, depth: number) => {
      const below = this.#open.get(path);
      const name = path === '/' ? '/' : path.slice(path.lastIndexOf('/') + 1);
      rows.push({ path, name, depth, isOpen: below !== undefined });
      for (const child of below ?? []) add(child, depth + 1);
    };
    add('/', 0);
    this.rows.set(rows);
  }
}
