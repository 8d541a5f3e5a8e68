import { Readable } from 'node:stream';
import { Code, ConnectError } from '@connectrpc/connect';
import { type EntryInfo, FileType } from '../../gen/filesystem/filesystem_pb.js';
import type { Connection } from '../connection/connection.ts';
import { askState, type DaemonState } from '../connection/daemon-state.ts';
import { Failure } from '../output/failure.ts';
import {
  type DestinationTree,
  type ItemKind,
  requireDepth,
  requireName,
  type Select,
  type SourceTree,
  type TreeItem,
} from './item.ts';
import { joinPath } from './place.ts';
import { watchEvents } from './watch-events.ts';

/** A daemon may be silent for this time while it stores an upload, in milliseconds. */
export const STORING_MS = 10 * 60_000;

/** The files below one path in a sandbox. */
export class RemoteTree implements SourceTree, DestinationTree {
  readonly label: string;
  readonly connection: Connection;
  readonly #root: string;
  #state: Promise<DaemonState> | null = null;

  constructor(connection: Connection, root: string) {
    this.connection = connection;
    this.#root = root;
    this.label = `:${root}`;
  }

  /** Returns what the daemon says about itself. Asks it once. Throws `Failure`. */
  state(): Promise<DaemonState> {
    this.#state ??= askState(this.connection);
    return this.#state;
  }

  /** Returns the path of an item, as requests to the daemon name it. */
  pathOf(names: readonly string[]): string {
    return joinPath(this.#root, ...names);
  }

  /** Returns the directory of an item and its name there. */
  above(names: readonly string[]): readonly [tree: RemoteTree, name: string] {
    const path = this.pathOf(names);
    const at = path.lastIndexOf('/');
    const directory = at < 0 ? '.' : path.slice(0, at) || '/';
    return [new RemoteTree(this.connection, directory), path.slice(at + 1)];
  }

  /** Returns whether an archive can bring a file there. It would replace a link, which other uploads follow. */
  async takesArchiveAt(names: readonly string[]): Promise<boolean> {
    if (!(await this.keepsModes())) return false;
    const entry = await statOrNull(this.connection, this.pathOf(names));
    return entry === null || kindOf(entry) === 'file';
  }

  async root(): Promise<TreeItem | null> {
    const entry = await statOrNull(this.connection, this.#root);
    // A link at the root is followed. Its own entry has the kind of its target, but the size and the mode of the link.
    const path = entry?.symlinkTarget;
    const target = path === undefined ? null : await statOrNull(this.connection, path);
    const followed = target ?? entry;
    return followed && itemOf([], followed, entryType(followed));
  }

  async *walk(select?: Select): AsyncGenerator<TreeItem> {
    const pending: (readonly string[])[] = [[]];
    for (let names = pending.pop(); names; names = pending.pop()) {
      requireDepth(names, this.connection.target.name);
      const items = (await listDirectory(this.connection, this.pathOf(names))).map((entry) =>
        itemOf([...(names ?? []), entry.name], entry, kindOf(entry)),
      );
      const selected = select ? await select(items) : items;
      yield* selected;
      for (const { kind, names: below } of selected.toReversed())
        if (kind === 'directory') pending.push(below);
    }
  }

  async open({ names, size }: TreeItem): Promise<Readable> {
    const response = await this.connection.http.send({
      path: '/files',
      query: this.connection.fileQuery(this.pathOf(names)),
      headers: { 'accept-encoding': 'identity' },
    });
    const told = Number(response.headers['content-length'] ?? size);
    // The content is limited to its size, because an endless answer would fill the disk.
    return limited(response, told, this.pathOf(names));
  }

  /** Returns the digest in `Repr-Digest` (RFC 9530), or null if the answer has none. */
  async digest({ names }: TreeItem): Promise<string | null> {
    const response = await this.connection.http.send({
      method: 'HEAD',
      path: '/files',
      query: this.connection.fileQuery(this.pathOf(names)),
      headers: { 'accept-encoding': 'identity', 'want-repr-digest': 'sha-256=1' },
      silenceMs: STORING_MS,
    });
    response.resume();
    return digestIn(response.headers['repr-digest']);
  }

  /**
   * Returns a text that is the same for all names of one file, and differs for any other file. It is the entity tag of envd, which has
   * the inode. It is null for another daemon, whose tags prove nothing.
   */
  async identityOf({ names }: TreeItem): Promise<string | null> {
    if (!(await this.state()).hasExtensions) return null;
    const response = await this.connection.http.send({
      method: 'HEAD',
      path: '/files',
      query: this.connection.fileQuery(this.pathOf(names)),
      headers: { 'accept-encoding': 'identity' },
    });
    response.resume();
    return response.headers.etag ?? null;
  }

  async *changes(signal: AbortSignal): AsyncGenerator<unknown> {
    yield* watchEvents(this.connection, { path: this.#root, recursive: true }, signal);
  }

  async makeDirectory(names: readonly string[]): Promise<void> {
    await makeDirectoryAt(this.connection, this.pathOf(names));
  }

  async write(names: readonly string[], item: TreeItem, content: Readable): Promise<void> {
    await uploadFile(this.connection, this.pathOf(names), content, item);
  }

  async remove(names: readonly string[]): Promise<void> {
    await this.connection.call((options) =>
      this.connection.files.remove({ path: this.pathOf(names) }, options),
    );
  }

  async keepsModes(): Promise<boolean> {
    return (await this.state()).hasExtensions;
  }

  async setMode(names: readonly string[], mode: number): Promise<void> {
    await this.connection.call((options) =>
      this.connection.files.setAttributes({ path: this.pathOf(names), mode: octal(mode) }, options),
    );
  }
}

/** Uploads the content of a file. If `size` is null, it is not known before the end. `mode` is an extension of envd, which other daemons ignore. Throws `Failure`. */
export async function uploadFile(
  connection: Connection,
  path: string,
  content: Readable | Buffer,
  { size, mode }: { readonly size: number | null; readonly mode: number | null },
  headers: Readonly<Record<string, string>> = {},
): Promise<void> {
  await connection.http.text({
    method: 'POST',
    path: '/files',
    query: {
      ...connection.fileQuery(path),
      mode: mode === null ? undefined : octal(mode),
    },
    headers: {
      'content-type': 'application/octet-stream',
      ...(size !== null && { 'content-length': String(size) }),
      ...headers,
    },
    body: content,
    silenceMs: STORING_MS,
  });
}

function octal(mode: number): string {
  return `0${(mode & 0o777).toString(8).padStart(3, '0')}`;
}

/** Makes a directory and its parents. Returns whether it was missing. Throws `Failure`. */
export async function makeDirectoryAt(connection: Connection, path: string): Promise<boolean> {
  try {
    await connection.files.makeDir({ path }, connection.unary);
    return true;
  } catch (error) {
    if (error instanceof ConnectError && error.code === Code.AlreadyExists) return false;
    throw await connection.failure(error);
  }
}

/** Returns the entry at a path, or null if there is none. Does not follow a link. Throws `Failure`. */
export async function statOrNull(connection: Connection, path: string): Promise<EntryInfo | null> {
  try {
    return (await connection.files.stat({ path }, connection.unary)).entry ?? null;
  } catch (error) {
    if (error instanceof ConnectError && error.code === Code.NotFound) return null;
    throw await connection.failure(error);
  }
}

/** Returns the entries of a directory. Checks their names, because paths are made of them. Throws `Failure`. */
export async function listDirectory(connection: Connection, path: string): Promise<EntryInfo[]> {
  const { entries } = await connection.call((options) =>
    connection.files.listDir({ path, depth: 1 }, options),
  );
  for (const { name } of entries) requireName(name, connection.target.name);
  return entries;
}

/** Returns the kind of an entry. For a link, it is the kind of its target. */
export function entryType({ type, permissions }: EntryInfo): ItemKind {
  if (type === FileType.DIRECTORY) return 'directory';
  if (type !== FileType.FILE) return 'other';
  // In the text of the mode, everything but a regular file has a letter of its own at the beginning.
  return /^[-Lugt]/.test(permissions) || permissions === '' ? 'file' : 'other';
}

/** Returns the kind of an entry. For a link, it is `link`. */
export function kindOf(entry: EntryInfo): ItemKind {
  const isLink = entry.symlinkTarget !== undefined || entry.type === FileType.SYMLINK;
  return isLink ? 'link' : entryType(entry);
}

function itemOf(names: readonly string[], entry: EntryInfo, kind: ItemKind): TreeItem {
  const { size, mode, modifiedTime } = entry;
  const modified = modifiedTime ? Number(modifiedTime.seconds) * 1000 + modifiedTime.nanos / 1e6 : 0;
  return { names, kind, size: Number(size), mode, modified, target: null, identity: null, isSparse: false };
}

/** Returns the SHA-256 in a field of RFC 9530 as base64, or null if it has none. */
export function digestIn(field: string | string[] | undefined): string | null {
  return /sha-256=:([A-Za-z0-9+/=]+):/.exec(String(field ?? ''))?.[1] ?? null;
}

async function* bytesUpTo(source: AsyncIterable<Buffer>, most: number, path: string): AsyncGenerator<Buffer> {
  let length = 0;
  for await (const piece of source) {
    length += piece.length;
    if (length > most) throw new Failure('failed', `'${path}' is longer than the daemon said`);
    yield piece;
  }
  if (length < most) throw new Failure('unreachable', `'${path}' broke off after ${length} of ${most} bytes`);
}

function limited(response: Readable, most: number, path: string): Readable {
  return Readable.from(bytesUpTo(response, most, path), { objectMode: false });
}
