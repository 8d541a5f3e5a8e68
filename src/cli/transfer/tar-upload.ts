import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Pack, pack } from 'tar-stream';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { TreeItem } from './item.ts';
import type { LocalTree } from './local-tree.ts';
import { type RemoteTree, STORING_MS } from './remote-tree.ts';
import { SMALL_BYTES } from './small-files.ts';

/**
 * Uploads files, directories and links in one archive, which keeps modes and times. The daemon must be able to unpack it,
 * which is an extension of envd. The items belong to `source`, and each directory comes before its content. `nameOf` returns the path
 * of an item below `tree`. Throws `Failure`.
 */
export async function uploadArchive(
  source: LocalTree,
  items: readonly TreeItem[],
  tree: RemoteTree,
  progress: Progress,
  nameOf = ({ names }: TreeItem): string => names.join('/'),
): Promise<void> {
  const { http } = tree.connection;
  const archive = pack();
  packAll(archive, source, items, progress, nameOf).catch((error: Error) => archive.destroy(error));
  // A daemon may answer before it has read everything: nothing is packed any more then.
  await http.text({
    method: 'POST',
    path: '/files',
    query: tree.connection.fileQuery(tree.pathOf([])),
    headers: { 'content-type': 'application/x-tar' },
    body: Readable.from(archive, { objectMode: false }),
    silenceMs: STORING_MS,
  });
  archive.destroy();
}

async function packAll(
  archive: Pack,
  source: LocalTree,
  items: readonly TreeItem[],
  progress: Progress,
  nameOf: (item: TreeItem) => string,
): Promise<void> {
  /** The first names of files that have several. */
  const firsts = new Map<string, string>();
  for (const item of items) {
    const name = nameOf(item);
    const headers = headersOf(item, name);
    const first = item.identity === null ? undefined : firsts.get(item.identity);
    if (item.identity !== null && first === undefined) firsts.set(item.identity, name);
    if (first !== undefined) {
      archive.entry({ ...headers, type: 'link', size: 0, linkname: first });
      progress.advance(item.size, name);
    } else if (item.kind !== 'file') archive.entry(headers);
    else if (item.size <= SMALL_BYTES) {
      await addSmall(archive, headers, source.readSmall(item));
      progress.advance(item.size, name);
    } else {
      const content = counting(await source.open(item), item.size, name, progress);
      await pipeline(content, archive.entry(headers));
    }
  }
  archive.finalize();
}

/** Resolves when the daemon has taken enough that more can be read. */
function addSmall(archive: Pack, headers: Parameters<Pack['entry']>[0], content: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    archive.entry(headers, content, (error) => (error ? reject(error) : resolve()));
  });
}

const TYPES = { file: 'file', link: 'symlink', directory: 'directory' } as const;

function headersOf(
  { kind, size, mode, modified, target }: TreeItem,
  name: string,
): Parameters<Pack['entry']>[0] {
  return {
    name: name + (kind === 'directory' ? '/' : ''),
    type: TYPES[kind as keyof typeof TYPES],
    size: kind === 'file' ? size : 0,
    mode,
    mtime: new Date(modified),
    // The header has whole seconds only.
    pax: { mtime: (modified / 1000).toFixed(6) },
    ...(target !== null && { linkname: target }),
  };
}
