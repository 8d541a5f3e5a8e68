import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Pack, pack } from 'tar-stream';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { SourceTree, TreeItem } from './item.ts';
import { type RemoteTree, STORING_MS } from './remote-tree.ts';

/**
 * Uploads files, directories and links in one archive, which keeps modes and times. The daemon must be able to unpack it,
 * which is an extension of envd. The items belong to `source`, and each directory comes before its content. Throws `Failure`.
 */
export async function uploadArchive(
  source: SourceTree,
  items: readonly TreeItem[],
  tree: RemoteTree,
  names: readonly string[],
  progress: Progress,
): Promise<void> {
  const { http } = tree.connection;
  const archive = pack();
  packAll(archive, source, items, progress).catch((error: Error) => archive.destroy(error));
  // A daemon may answer before it has read everything: nothing is packed any more then.
  await http.text({
    method: 'POST',
    path: '/files',
    query: tree.connection.fileQuery(tree.pathOf(names)),
    headers: { 'content-type': 'application/x-tar' },
    body: Readable.from(archive, { objectMode: false }),
    silenceMs: STORING_MS,
  });
  archive.destroy();
}

async function packAll(
  archive: Pack,
  source: SourceTree,
  items: readonly TreeItem[],
  progress: Progress,
): Promise<void> {
  for (const item of items) {
    if (item.kind !== 'file') archive.entry(headersOf(item));
    else if (item.size === 0) archive.entry(headersOf(item), '');
    else {
      const content = counting(await source.open(item), item.size, item.names.join('/'), progress);
      await pipeline(content, archive.entry(headersOf(item)));
    }
  }
  archive.finalize();
}

const TYPES = { file: 'file', link: 'symlink', directory: 'directory' } as const;

function headersOf({ names, kind, size, mode, modified, target }: TreeItem): Parameters<Pack['entry']>[0] {
  return {
    name: names.join('/') + (kind === 'directory' ? '/' : ''),
    type: TYPES[kind as keyof typeof TYPES],
    size: kind === 'file' ? size : 0,
    mode,
    mtime: new Date(modified),
    // The header has whole seconds only.
    pax: { mtime: (modified / 1000).toFixed(6) },
    ...(target !== null && { linkname: target }),
  };
}
