import { constants, open } from 'node:fs';
import { link, mkdir, opendir } from 'node:fs/promises';
import { promisify } from 'node:util';
import { EnvdError } from '../../../base/errors.ts';
import { copyContent } from '../../linux/files/copy-content.ts';
import { OpenFile } from '../../linux/files/open-file.ts';
import { type Lane, openedLane } from '../../linux/lanes/lane.ts';
import type { Lanes } from '../../linux/lanes/lanes.ts';
import { untilReleased } from '../../linux/lanes/leases.ts';
import { type BytePath, displayPath, joinBytes, pathBuffer } from '../../linux/paths/byte-path.ts';
import { MAX_DEPTH } from '../../linux/paths/paths.ts';
import { native } from '../../linux/system/native.ts';
import { copyLink, copyStatus, O_ENTRY } from './copy-status.ts';
import { Links } from './links.ts';

const { O_RDONLY, O_WRONLY, O_CREAT, O_EXCL, O_NONBLOCK, O_DIRECTORY } = constants;

const openFile = promisify(open);

/** This many names are read together. */
const NAMES_AT_ONCE = 256;

/** Describes a name in an open directory. */
export interface TreeSource {
  readonly directory: number;
  readonly name: BytePath;
  readonly lane: Lane;
}

export interface TreeTarget {
  readonly path: BytePath;
  readonly lane: Lane;
}

/**
 * Copies the tree at `source` to `target`, which must be in a directory that only root can enter. It keeps content,
 * owners, modes without set-id bits, extended attributes, times, symbolic and hard links. It reads each entry through
 * one descriptor, so that replacing the entry meanwhile cannot mix the attributes of two files. `shown` is the source's
 * path in errors. Throws `failed_precondition` for fifos, sockets and devices, and for too deep a tree.
 */
export async function copyTree(
  source: TreeSource,
  target: TreeTarget,
  shown: string,
  lanes: Lanes,
  signal: AbortSignal,
): Promise<void> {
  await new TreeCopy(target.lane, lanes, signal).copy(source, target.path, shown, 1);
}

class TreeCopy {
  readonly #targetLane: Lane;
  readonly #lanes: Lanes;
  readonly #signal: AbortSignal;
  readonly #links = new Links();

  constructor(targetLane: Lane, lanes: Lanes, signal: AbortSignal) {
    this.#targetLane = targetLane;
    this.#lanes = lanes;
    this.#signal = signal;
  }

  async copy(source: TreeSource, target: BytePath, shown: string, depth: number): Promise<void> {
    this.#signal.throwIfAborted();
    await using entry = await this.#enter(source);
    const status = await entry.exactStat();
    const { dev: device, ino: inode, nlink } = status;
    const links = status.isDirectory() ? 0 : Number(nlink);
    const first = this.#links.earlier({ links, device, inode }, target);
    if (first !== null) {
      return this.#lanes.run(this.#targetLane, () => link(pathBuffer(first), pathBuffer(target)));
    }
    if (status.isFile()) await this.#copyFile(entry, target);
    else if (status.isDirectory()) await this.#copyDirectory(entry, target, shown, depth);
    else if (status.isSymbolicLink()) await copyLink(entry, pathBuffer(target), this.#targetLane);
    else throw withoutContent(shown);
  }

  /** Opens an entry with O_PATH. The entry may be a mount that does not answer. */
  async #enter({ directory, name, lane: base }: TreeSource): Promise<OpenFile> {
    const { value, lane } = await this.#lanes.find(
      () => native.openAt(directory, pathBuffer(name), O_ENTRY, null),
      { base, discard: (late) => new OpenFile(late, this.#lanes, base).discard() },
    );
    return new OpenFile(value, this.#lanes, lane);
  }

  async #copyFile(entry: OpenFile, target: BytePath): Promise<void> {
    await using from = await untilReleased(this.#lanes.limitMs, () =>
      this.#open(pathOf(entry), O_RDONLY | O_NONBLOCK, entry.lane),
    );
    await using to = await this.#open(target, O_WRONLY | O_CREAT | O_EXCL, this.#targetLane);
    await copyContent(from, to);
    await copyStatus(from, to);
  }

  async #copyDirectory(entry: OpenFile, target: BytePath, shown: string, depth: number): Promise<void> {
    if (depth > MAX_DEPTH)
      throw new EnvdError('failed_precondition', `tree is more than ${MAX_DEPTH} levels deep: '${shown}'`);
    await using from = await this.#open(pathOf(entry), O_RDONLY | O_DIRECTORY, entry.lane);
    await this.#lanes.run(this.#targetLane, () => mkdir(pathBuffer(target), { mode: 0o700 }));
    await using to = await this.#open(target, O_RDONLY | O_DIRECTORY, this.#targetLane);
    for await (const name of namesIn(from)) {
      const source = { directory: from.fd, name, lane: from.lane };
      await this.copy(source, joinBytes(target, name), `${shown}/${displayPath(name)}`, depth + 1);
    }
    // This comes last, because adding entries changes the directory's times.
    await copyStatus(from, to);
  }

  async #open(path: BytePath, flags: number, lane: Lane): Promise<OpenFile> {
    const open = () => openFile(pathBuffer(path), flags, 0o600);
    const owned = (descriptor: number) => new OpenFile(descriptor, this.#lanes, openedLane(lane, flags));
    return owned(await this.#lanes.run(lane, open, { discard: (late) => owned(late).discard() }));
  }
}

/** Yields the names in an open directory, of which a server may invent any number. */
async function* namesIn(directory: OpenFile): AsyncGenerator<BytePath> {
  // In this encoding, a name has one character per byte, as in a `BytePath`.
  const open = () => opendir(pathOf(directory), { encoding: 'latin1', bufferSize: NAMES_AT_ONCE });
  const listed = await directory.run(open, { discard: (late) => late.close() });
  const read = () => directory.run(() => listed.read());
  try {
    for (let entry = await read(); entry; entry = await read()) yield entry.name;
  } finally {
    // Nobody waits for this, because a read whose server does not answer comes first.
    listed.close().catch(() => {});
  }
}

function withoutContent(path: string): EnvdError {
  const message = `cannot move a fifo, socket or device to another file system: '${path}'`;
  return new EnvdError('failed_precondition', message);
}

/** Returns the path by which an open entry can be opened again. */
function pathOf({ fd }: OpenFile): BytePath {
  return `/proc/self/fd/${fd}`;
}
