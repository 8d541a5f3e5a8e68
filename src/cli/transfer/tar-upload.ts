import { Readable } from 'node:stream';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { SourceTree, TreeItem } from './item.ts';
import { type RemoteTree, STORING_MS } from './remote-tree.ts';
import { tarEnd, tarHeaders, tarPadding } from './tar-writer.ts';

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
  await http.text({
    method: 'POST',
    path: '/files',
    query: tree.connection.fileQuery(tree.pathOf(names)),
    headers: { 'content-type': 'application/x-tar' },
    body: Readable.from(archive(source, items, progress), { objectMode: false }),
    silenceMs: STORING_MS,
  });
}

async function* archive(
  source: SourceTree,
  items: readonly TreeItem[],
  progress: Progress,
): AsyncGenerator<Buffer> {
  for (const item of items) {
    yield tarHeaders(item);
    if (item.kind !== 'file') continue;
    const content = await source.open(item);
    if (item.size > 0) yield* counting(content, item.size, item.names.join('/'), progress);
    else content.destroy();
    yield tarPadding(item.size);
  }
  yield tarEnd();
}
