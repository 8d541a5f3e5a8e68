import type { DirectoryWriter } from '../../../linux/files/directory-writer.ts';
import type { Attribute } from '../../../linux/files/entries.ts';
import type { Owner } from '../../../linux/files/place.ts';
import type { BytePath } from '../../../linux/paths/byte-path.ts';

/** Runs a task in the background. */
type Beside = (task: () => Promise<void>) => Promise<void>;

/** At most this many entries are stored at the same time. */
const MAX_TASKS = 16;

/** Describes a directory that entries are unpacked into. */
export interface Level {
  readonly name: BytePath;
  readonly writer: DirectoryWriter;
  /** Entries of the directory that are being stored, by name. */
  readonly tasks: Map<BytePath, Promise<void>>;
  /** Completes the directory when all entries are in it. */
  finish: (() => Promise<void>) | null;
}

/** What an archive says about a directory. */
export interface DirectoryFacts {
  readonly mode: number;
  readonly owner: Owner;
  readonly attributes: readonly Attribute[];
  /** The modification time is in nanoseconds since the epoch. */
  readonly modified: bigint;
}

/**
 * Keeps the directories on the path to the current entry open, so that it does not matter what other processes put in
 * their place. It also keeps track of the entries that are being stored. A directory is completed when the archive
 * leaves it.
 */
export class DirectoryStack {
  readonly #root: DirectoryWriter;
  readonly #levels: Level[];
  readonly #user: Owner;
  readonly #runOverlapping: Beside;
  readonly #running = new Set<Promise<void>>();
  #failure: { readonly reason: unknown } | null = null;

  constructor(root: DirectoryWriter, user: Owner, runOverlapping: Beside) {
    this.#runOverlapping = runOverlapping;
    this.#root = root;
    this.#levels = [{ name: '', writer: root, tasks: new Map(), finish: null }];
    this.#user = user;
  }

  /** Goes to a directory. Missing directories are made for the user. */
  async enter(path: readonly BytePath[]): Promise<Level> {
    let depth = 0;
    while (depth < path.length && this.#levels[depth + 1]?.name === path[depth]) depth++;
    while (this.#levels.length > depth + 1) await this.#leave();
    for (const name of path.slice(depth)) {
      await this.settled(this.#top, name);
      const { directory } = await this.#top.writer.makeDirectory(name, this.#user);
      this.#levels.push({ name, writer: directory, tasks: new Map(), finish: null });
    }
    return this.#top;
  }

  /** Makes a directory and goes there. If the directory exists, it stays as it is, and the result is false. */
  async make(level: Level, name: BytePath, facts: DirectoryFacts): Promise<boolean> {
    const { directory, isNew } = await level.writer.makeDirectory(name, facts.owner);
    const made: Level = { name, writer: directory, tasks: new Map(), finish: null };
    this.#levels.push(made);
    if (!isNew) return false;
    const { mode, attributes } = facts;
    // The user's own permissions may be needed to fill the directory.
    if (mode !== 0o755) await directory.setFirstMode(mode | 0o700, facts.owner.uid);
    for (const { name: key, value } of attributes) await directory.setAttribute(key, value);
    made.finish = async () => {
      if ((mode | 0o700) !== mode) await directory.setMode(mode);
      await directory.setTime(facts.modified);
    };
    return true;
  }

  /** Opens a directory that exists. The caller closes it. */
  async open(path: readonly BytePath[]): Promise<DirectoryWriter> {
    let directory = await this.#root.openDirectory('.');
    for (const name of path) {
      await using parent = directory;
      directory = await parent.openDirectory(name);
    }
    return directory;
  }

  /** Runs a task in the background as soon as few enough are running. `assertNoFailure` throws its failure. */
  async start(level: Level, name: BytePath, task: () => Promise<void>): Promise<void> {
    await this.#room();
    const run = this.#run(task).finally(() => level.tasks.delete(name));
    level.tasks.set(name, run);
  }

  /** Resolves when nothing is being stored under this name. */
  async settled(level: Level, name: BytePath): Promise<void> {
    await level.tasks.get(name);
  }

  async allSettled(): Promise<void> {
    await Promise.all(this.#running);
  }

  async leaveAll(): Promise<void> {
    while (this.#levels.length > 1) await this.#leave();
    await this.allSettled();
  }

  assertNoFailure(): void {
    if (this.#failure) throw this.#failure.reason;
  }

  get #top(): Level {
    const top = this.#levels.at(-1);
    if (!top) throw new Error('the root is never left');
    return top;
  }

  /** Leaves the top directory, which is completed in the background. */
  async #leave(): Promise<void> {
    const level = this.#levels.pop();
    if (!level) return;
    await this.#room();
    void this.#run(async () => {
      await using _ = level.writer;
      await Promise.all(level.tasks.values());
      await level.finish?.();
    });
  }

  async #room(): Promise<void> {
    while (this.#running.size >= MAX_TASKS) await Promise.race(this.#running);
  }

  #run(task: () => Promise<void>): Promise<void> {
    const run = this.#runOverlapping(task)
      .catch((reason: unknown) => {
        this.#failure ??= { reason };
      })
      .finally(() => this.#running.delete(run));
    this.#running.add(run);
    return run;
  }
}
