import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { resolve } from 'node:path';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';
import { counting } from './counting.ts';
import type { TreeItem } from './item.ts';
import { inParallel } from './pool.ts';
import { type RemoteTree, STORING_MS, statOrNull, uploadFile } from './remote-tree.ts';

/** Larger files are uploaded in parts of this size. After an interruption, complete parts are not sent again. */
export const PART_BYTES = 64 * 1024 * 1024;
const MAX_PARTS = 4096;

/** A part of a file, with its place at the destination. */
interface Part {
  readonly path: string;
  readonly start: number;
  readonly size: number;
}

/**
 * Uploads a large local file in parts beside its destination, and lets the daemon join them. Parts of an earlier attempt with
 * the same file are not sent again. Throws `Failure`.
 */
export async function uploadInParts(
  tree: RemoteTree,
  names: readonly string[],
  local: string,
  item: TreeItem,
  { parallel, progress }: { readonly parallel: number; readonly progress: Progress },
): Promise<void> {
  const destination = tree.pathOf(names);
  const { connection } = tree;
  const parts = partsOf(destination, local, item);
  await inParallel(parts, Math.min(parallel, 4), async ({ path, start, size }) => {
    const known = await statOrNull(connection, path);
    if (Number(known?.size ?? -1) === size) progress.advance(size, local);
    else {
      const content = createReadStream(local, { start, end: start + size - 1, highWaterMark: 256 * 1024 });
      await uploadFile(connection, path, counting(content, size, local, progress), { size, mode: null });
    }
  });
  await connection.http.text({
    method: 'POST',
    path: '/files/compose',
    body: {
      source_paths: parts.map(({ path }) => path),
      destination,
      ...(connection.target.user !== null && { username: connection.target.user }),
    },
    silenceMs: STORING_MS,
  });
}

/**
 * Returns the parts of a file. Their names identify the version of the file, so that parts of another version are never used.
 */
function partsOf(destination: string, local: string, { size, modified }: TreeItem): Part[] {
  const count = Math.ceil(size / PART_BYTES);
  if (count > MAX_PARTS)
    throw new Failure('failed', `${local} is too large: more than ${MAX_PARTS} parts of 64 MiB`);
  const identity = createHash('sha256')
    .update(`${resolve(local)}\0${size}\0${modified}\0${destination}`)
    .digest('hex');
  const directory = destination.slice(0, destination.lastIndexOf('/') + 1);
  return Array.from({ length: count }, (_, index) => {
    const start = index * PART_BYTES;
    const path = `${directory}.${identity.slice(0, 16)}-${index}.envctl-part`;
    return { path, start, size: Math.min(PART_BYTES, size - start) };
  });
}
