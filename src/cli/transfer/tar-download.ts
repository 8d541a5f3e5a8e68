import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { type ExtractEvents, extract } from 'tar-stream';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { TreeItem } from './item.ts';
import type { LocalTree } from './local-tree.ts';
import type { RemoteTree } from './remote-tree.ts';
import { SMALL_BYTES } from './small-files.ts';

/** An archive may have so many members that are not written, of so many bytes in all: a daemon could send them without an end. */
const MAX_OTHERS = 5_000_000;
const MAX_OTHER_BYTES = 1024 ** 3;

/**
 * Downloads those files of a tree that the daemon puts into its archive as they were listed, in one answer (an extension of envd).
 * Yields each file once it is stored, and further names of it once they lead to it. What the archive has besides is not written:
 * symbolic links, files that have changed, and names that were not listed.
 */
export async function* downloadArchive(
  source: RemoteTree,
  files: readonly TreeItem[],
  destination: LocalTree,
  progress: Progress,
): AsyncGenerator<TreeItem> {
  const { connection } = source;
  const response = await connection.http.send({
    path: '/files',
    query: { ...connection.fileQuery(source.pathOf([])), format: 'tar' },
    headers: { 'accept-encoding': 'identity' },
  });
  const archive = extract();
  const ended = pipeline(response, archive);
  // An error also ends the iteration below.
  ended.catch(() => {});
  const members = new Members(files, destination, progress);
  let [others, otherBytes] = [0, 0];
  try {
    for await (const entry of archive) {
      const item = await members.store(entry);
      if (item) yield item;
      if (members.isComplete) return;
      if (item) continue;
      others++;
      otherBytes += entry.header.size ?? 0;
      if (others > MAX_OTHERS || otherBytes > MAX_OTHER_BYTES)
        throw new Failure(
          'failed',
          `${source.label} changes while it is read, or the daemon tells wrong sizes`,
        );
    }
  } finally {
    response.destroy();
  }
}

/** Stores the members of an archive that were listed. */
class Members {
  readonly #expected: Map<string, TreeItem>;
  readonly #stored = new Map<string, TreeItem>();
  readonly #destination: LocalTree;
  readonly #progress: Progress;

  constructor(files: readonly TreeItem[], destination: LocalTree, progress: Progress) {
    this.#expected = new Map(files.map((item) => [item.names.join('/'), item]));
    this.#destination = destination;
    this.#progress = progress;
  }

  get isComplete(): boolean {
    return this.#expected.size === 0;
  }

  /** Returns the item of a member, or null for one that is not stored. */
  async store(entry: ExtractEvents['entry'][1]): Promise<TreeItem | null> {
    const { type, size = 0, linkname } = entry.header;
    const name = withoutDot(entry.header.name);
    const item = this.#expected.get(name);
    // A name of a file leads to one that came before.
    const first = type === 'link' ? this.#stored.get(withoutDot(linkname ?? '')) : undefined;
    if (item && type === 'file' && size === item.size && size <= SMALL_BYTES) {
      await this.#destination.writeSmall(item, await buffer(entry));
      this.#progress.advance(size, name);
    } else if (item && type === 'file' && size === item.size) {
      const content = counting(Readable.from(entry, { objectMode: false }), size, name, this.#progress);
      await this.#destination.write(item.names, item, content);
    } else {
      entry.resume();
      if (!item || first?.size !== item.size) return null;
      await this.#destination.link(item.names, first.names);
      this.#progress.advance(item.size, name);
    }
    this.#expected.delete(name);
    this.#stored.set(name, item);
    return item;
  }
}

/** Names in an archive of envd begin with the root, which is a dot. */
function withoutDot(name: string): string {
  return name.startsWith('./') ? name.slice(2) : name;
}
