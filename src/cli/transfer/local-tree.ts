import { createHash } from 'node:crypto';
import { constants, createReadStream, renameSync, rmSync } from 'node:fs';
import {
  chmod,
  link,
  lstat,
  mkdir,
  open,
  opendir,
  readlink,
  rename,
  rm,
  stat,
  utimes,
  watch,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { isSystemError } from '../../base/errors.ts';
import { Failure } from '../output/failure.ts';
import {
  type DestinationTree,
  requireDepth,
  requireName,
  type Select,
  type SourceTree,
  type TreeItem,
} from './item.ts';
import { itemOf, localFailure, missingAsNull } from './local-item.ts';
import { readSmall, writeSmall } from './small-files.ts';
import { sparseWriter } from './sparse-writer.ts';
import type { UnfinishedFiles } from './unfinished-files.ts';

/**
 * Returns the path of an incomplete file in the directory of the complete one. Its name has only `identity`, because the name
 * of the complete file may leave no room for more.
 */
export function partBeside(path: string, identity: string): string {
  return join(dirname(path), `.${identity}.envctl-part`);
}

/**
 * The files below one path on this machine. Files that a daemon names are written only below the root, because each name is
 * one part of a path and no link below the root is followed.
 */
export class LocalTree implements SourceTree, DestinationTree {
  readonly label: string;
  readonly #root: string;
  /** The paths of directories that have been checked or made. */
  readonly #directories = new Set<string>();
  readonly #unfinished: UnfinishedFiles;
  #serial = 0;

  constructor(root: string, unfinished: UnfinishedFiles) {
    this.#root = root;
    this.#unfinished = unfinished;
    this.label = root;
  }

  async root(): Promise<TreeItem | null> {
    const stats = await missingAsNull(stat(this.#root));
    return stats && itemOf([], stats, null);
  }

  async *walk(select?: Select): AsyncGenerator<TreeItem> {
    const pending: string[][] = [[]];
    for (let names = pending.pop(); names; names = pending.pop()) {
      requireDepth(names, this.label);
      const found: TreeItem[] = [];
      for await (const { name } of await opendir(join(this.#root, ...names))) {
        const item = await this.#look([...names, name]);
        if (item) found.push(item);
      }
      found.sort((one, other) => ((one.names.at(-1) ?? '') < (other.names.at(-1) ?? '') ? -1 : 1));
      const selected = select ? await select(found) : found;
      yield* selected;
      for (const { kind, names: below } of selected.toReversed())
        if (kind === 'directory') pending.push([...below]);
    }
  }

  async open({ names }: TreeItem): Promise<Readable> {
    return createReadStream(join(this.#root, ...names), { highWaterMark: 256 * 1024 });
  }

  /** Returns the content of a small file. Throws `Failure` if it has become shorter. */
  readSmall({ names, size }: TreeItem): Buffer {
    try {
      return readSmall(join(this.#root, ...names), size, names.join('/'));
    } catch (error) {
      throw localFailure(error);
    }
  }

  async digest({ names }: TreeItem): Promise<string> {
    const hash = createHash('sha256');
    await pipeline(createReadStream(join(this.#root, ...names)), hash);
    return hash.digest('base64');
  }

  async *changes(signal: AbortSignal): AsyncGenerator<unknown> {
    // No other directory can have its inode while it is open.
    const directory = await open(this.#root);
    try {
      const { dev, ino } = await directory.stat();
      // The watch begins in this turn, and what is done at the start comes in a later one: no change is between them.
      yield null;
      for await (const event of watch(this.#root, { recursive: true, signal })) {
        yield event;
        // An event of the root itself has no name. Node tells nothing more of a directory that is gone.
        if (event.filename) continue;
        const now = await missingAsNull(stat(this.#root));
        if (now?.dev !== dev || now.ino !== ino) return;
      }
    } finally {
      await directory.close();
    }
  }

  async makeDirectory(names: readonly string[]): Promise<void> {
    await this.#directory(names);
  }

  async write(names: readonly string[], item: TreeItem, content: Readable): Promise<void> {
    const path = await this.pathFor(names);
    const part = partBeside(path, `${process.pid}-${++this.#serial}`);
    this.#unfinished.add(part);
    try {
      // The file must be new, so that a link with this name is not followed.
      await pipeline(content, sparseWriter(await open(part, 'wx', 0o600)));
      await this.finish(part, path, item);
    } catch (error) {
      content.destroy();
      await rm(part, { force: true });
      throw localFailure(error);
    } finally {
      this.#unfinished.delete(part);
    }
  }

  /** Writes a small file as `write` does. */
  async writeSmall(item: TreeItem, content: Buffer): Promise<void> {
    const path = await this.pathFor(item.names);
    const part = partBeside(path, `${process.pid}-${++this.#serial}`);
    this.#unfinished.add(part);
    try {
      writeSmall(part, content, item);
      renameSync(part, path);
    } catch (error) {
      rmSync(part, { force: true });
      throw localFailure(error);
    } finally {
      this.#unfinished.delete(part);
    }
  }

  /** Gives a file below the root one more name. Replaces what has that name, and does not follow it. */
  async link(names: readonly string[], existing: readonly string[]): Promise<void> {
    const path = await this.pathFor(names);
    const part = partBeside(path, `${process.pid}-${++this.#serial}`);
    try {
      await link(join(this.#root, ...existing), part);
      // Where the name is one of that file already, rename(2) does nothing, and the part stays.
      await rename(part, path);
      await rm(part, { force: true });
    } catch (error) {
      await rm(part, { force: true });
      throw localFailure(error);
    }
  }

  /** Returns the path of a file that will be written. Makes its directories, none of which may be a link below the root. */
  async pathFor(names: readonly string[]): Promise<string> {
    for (const name of names) requireName(name, 'the daemon');
    requireDepth(names, 'the daemon');
    if (names.length === 0) {
      await mkdir(dirname(this.#root), { recursive: true });
      return this.#root;
    }
    return join(await this.#directory(names.slice(0, -1)), names.at(-1) ?? '');
  }

  /** Gives a complete file its mode, its time and its name. Replaces a link at that name, and does not follow it. */
  async finish(part: string, path: string, { mode, modified }: TreeItem): Promise<void> {
    // The mask of this process would leave bits out, and the file would differ from its source for good.
    await chmod(part, mode & 0o777);
    if (modified > 0) await utimes(part, modified / 1000, modified / 1000);
    await rename(part, path);
  }

  async remove(names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    const above = names.slice(0, -1);
    await this.#directory(above);
    await rm(join(this.#root, ...names), { recursive: true, force: true }).catch((error) =>
      Promise.reject(localFailure(error)),
    );
  }

  async keepsModes(): Promise<boolean> {
    return true;
  }

  async setMode(names: readonly string[], mode: number): Promise<void> {
    const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
    const path = join(await this.#directory(names.slice(0, -1)), ...names.slice(-1));
    try {
      const file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
      await file.chmod(mode & 0o777).finally(() => file.close());
    } catch (error) {
      throw localFailure(error);
    }
  }

  /** Makes a directory and its parents. Throws if one of them below the root is a link or no directory. */
  async #directory(names: readonly string[]): Promise<string> {
    let path = this.#root;
    if (!this.#directories.has(path))
      await mkdir(path, { recursive: true }).catch((error) => Promise.reject(localFailure(error)));
    this.#directories.add(path);
    for (const name of names) {
      requireName(name, 'the daemon');
      path = join(path, name);
      if (this.#directories.has(path)) continue;
      await makeOne(path);
      this.#directories.add(path);
    }
    return path;
  }

  async #look(names: string[]): Promise<TreeItem | null> {
    const path = join(this.#root, ...names);
    const stats = await missingAsNull(lstat(path));
    // A name that is not UTF-8 is read with this character, and so cannot be found.
    if (!stats)
      return path.includes('\ufffd')
        ? {
            names,
            kind: 'other',
            size: 0,
            mode: 0,
            modified: 0,
            target: null,
            identity: null,
            isSparse: false,
          }
        : null;
    return itemOf(names, stats, stats.isSymbolicLink() ? await readlink(path) : null);
  }
}

async function makeOne(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (error) {
    if (!isSystemError(error, 'EEXIST')) throw localFailure(error);
    const stats = await lstat(path);
    if (stats.isSymbolicLink())
      throw new Failure(
        'failed',
        `${path} is a link, which is not followed: remove it, or choose another destination`,
      );
    if (!stats.isDirectory()) throw new Failure('failed', `${path} is not a directory: remove it first`);
  }
}
