import { createHash } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { lstat, open, rm } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { TreeItem } from './item.ts';
import { localFailure } from './local-item.ts';
import { type LocalTree, partBeside } from './local-tree.ts';
import { digestIn, type RemoteTree } from './remote-tree.ts';
import { sparseWriter } from './sparse-writer.ts';

/** For larger files, an interrupted download can be resumed. */
export const RESUMABLE_BYTES = 8 * 1024 * 1024;

/**
 * Downloads a large file. The name of its part beside the destination contains the version of the file (the ETag), so that a
 * later call can resume it. If the daemon sends a digest, a file of several parts is checked. Throws `Failure`.
 */
export async function downloadResumable(
  source: RemoteTree,
  item: TreeItem,
  destination: LocalTree,
  names: readonly string[],
  progress: Progress,
): Promise<void> {
  const { http } = source.connection;
  const request = { path: '/files', query: source.connection.fileQuery(source.pathOf(item.names)) };
  const identity = { 'accept-encoding': 'identity' };
  const head = await http.send({ ...request, method: 'HEAD', headers: identity });
  head.resume();
  const { etag } = head.headers;
  const path = await destination.pathFor(names);
  if (etag === undefined || etag.startsWith('W/')) {
    const content = await source.open(item);
    return destination.write(names, item, counting(content, item.size, path, progress));
  }
  const partOf = (version: string, length: number) =>
    partBeside(
      path,
      createHash('sha256')
        .update(`${source.pathOf(item.names)}\0${path}\0${version}\0${length}`)
        .digest('hex')
        .slice(0, 16),
    );
  let size = Number(head.headers['content-length'] ?? item.size);
  let part = partOf(etag, size);
  let known = await sizeOfPart(part, size);
  let digest: string | null = null;
  if (known < size || size === 0) {
    const response = await http.send({ ...request, headers: { ...identity, ...rangeFrom(known, etag) } });
    digest = digestIn(response.headers['repr-digest']);
    if (response.statusCode !== 206) {
      // All of the file comes, as it is now: a log may have grown since the first question, or since the part was made.
      if (known > 0) await rm(part, { force: true });
      known = 0;
      size = Number(response.headers['content-length'] ?? size);
      part = partOf(response.headers.etag ?? etag, size);
    }
    progress.advance(known, path);
    await store(counting(response, size - known, path, progress), part, known).catch((error: unknown) => {
      // It would keep its connection if nobody has begun to read it.
      response.destroy();
      throw localFailure(error);
    });
  } else progress.advance(known, path);
  if (known > 0) await check(part, digest);
  await destination.finish(part, path, item);
}

/** Returns the headers of a request for the rest of a version. */
function rangeFrom(known: number, etag: string): Record<string, string> {
  if (known === 0) return {};
  return { range: `bytes=${known}-`, 'if-range': etag, 'want-repr-digest': 'sha-256=1' };
}

/** Returns the size of the part. It is 0 if there is none, or if something else has its name. */
async function sizeOfPart(part: string, most: number): Promise<number> {
  const stats = await lstat(part).catch(() => null);
  if (!stats) return 0;
  if (stats.isFile() && stats.size <= most) return stats.size;
  await rm(part, { force: true });
  return 0;
}

async function store(content: Readable, part: string, from: number): Promise<void> {
  await pipeline(content, await fileAt(part, from));
}

async function fileAt(part: string, from: number) {
  const { O_WRONLY, O_CREAT, O_NOFOLLOW } = constants;
  const file = await open(part, O_WRONLY | O_CREAT | O_NOFOLLOW, 0o600);
  await file.truncate(from);
  return sparseWriter(file, from);
}

async function check(part: string, digest: string | null): Promise<void> {
  if (digest === null) return;
  const hash = createHash('sha256');
  await pipeline(createReadStream(part), hash);
  if (hash.digest('base64') === digest) return;
  await rm(part, { force: true });
  throw new Failure('failed', `${part} did not have the right digest and was removed: try again`);
}
