import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { extract } from 'tar-stream';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { TreeItem } from './item.ts';
import type { LocalTree } from './local-tree.ts';
import type { RemoteTree } from './remote-tree.ts';

/** An archive may have so many members that are not written, of so many bytes in all: a daemon could send them without an end. */
const MAX_OTHERS = 5_000_000;
const MAX_OTHER_BYTES = 1024 ** 3;

/**
 * Downloads those files of a tree that the daemon puts into its archive as they were listed, in one answer (an extension of envd).
 * Yields each file once it is stored. What the archive has besides is not written: links, files that have changed, and names that
 * were not listed.
 */
export async function* downloadArchive(
  source: RemoteTree,
  files: readonly TreeItem[],
  destination: LocalTree,
  progress: Progress,
): AsyncGenerator<TreeItem> {
  const { connection } = source;
  const expected = new Map(files.map((item) => [item.names.join('/'), item]));
  const response = await connection.http.send({
    path: '/files',
    query: { ...connection.fileQuery(source.pathOf([])), format: 'tar' },
    headers: { 'accept-encoding': 'identity' },
  });
  const archive = extract();
  const ended = pipeline(response, archive);
  // An error also ends the iteration below.
  ended.catch(() => {});
  let [others, otherBytes] = [0, 0];
  try {
    for await (const entry of archive) {
      const { name, type, size = 0 } = entry.header;
      const item = expected.get(name);
      if (item && type === 'file' && size === item.size) {
        expected.delete(name);
        await destination.write(
          item.names,
          item,
          counting(Readable.from(entry, { objectMode: false }), size, name, progress),
        );
        yield item;
        if (expected.size === 0) return;
        continue;
      }
      others++;
      otherBytes += size;
      if (others > MAX_OTHERS || otherBytes > MAX_OTHER_BYTES)
        throw new Failure(
          'failed',
          `${source.label} changes while it is read, or the daemon tells wrong sizes`,
        );
      entry.resume();
    }
  } finally {
    response.destroy();
  }
}
