import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { usageError } from '../../output/failure.ts';
import type { Progress } from '../../output/progress.ts';
import type { CopyResult } from '../../transfer/copy.ts';
import type { FilePlace } from '../../transfer/place.ts';
import { RemoteTree, uploadFile } from '../../transfer/remote-tree.ts';
import type { Call } from '../spec/call.ts';

/** Returns whether a place is standard input or output. */
export function isStandard(place: FilePlace): boolean {
  return place.side === 'local' && place.path === '-';
}

/** Returns what comes by a pipe: standard input, or a fifo such as that of <(…). Returns null for any other place. */
export async function pipeAt(call: Call, place: FilePlace): Promise<AsyncIterable<Buffer> | null> {
  if (isStandard(place)) return call.surroundings.stdin as AsyncIterable<Buffer>;
  if (place.side !== 'local') return null;
  const stats = await stat(place.path).catch(() => null);
  return stats?.isFIFO() ? createReadStream(place.path) : null;
}

/** Uploads what comes by a pipe to its end. Throws `Failure`. */
export async function uploadPipe(
  content: AsyncIterable<Buffer>,
  to: unknown,
  path: string,
  progress: Progress,
): Promise<CopyResult> {
  if (!(to instanceof RemoteTree))
    throw usageError('both are on this machine: a path in the sandbox begins with a colon');
  if (path.endsWith('/') || (await to.root())?.kind === 'directory')
    throw usageError(`${to.label} is a directory: name the file, because what comes by a pipe has no name`);
  let bytes = 0;
  const counted = async function* () {
    for await (const piece of content) {
      bytes += piece.length;
      progress.expect(piece.length);
      progress.advance(piece.length, path);
      yield piece;
    }
  };
  const body = Readable.from(counted(), { objectMode: false });
  await uploadFile(to.connection, to.pathOf([]), body, { size: null, mode: null });
  return { files: 1, directories: 0, links: 0, bytes, skipped: 0 };
}

/** Writes files of a sandbox to standard output, byte for byte. Throws `Failure`. */
export async function copyToOutput(call: Call, trees: readonly unknown[]): Promise<void> {
  for (const tree of trees) {
    if (!(tree instanceof RemoteTree))
      throw usageError('both are on this machine: a path in the sandbox begins with a colon');
    const response = await tree.connection.http.send({
      path: '/files',
      query: tree.connection.fileQuery(tree.pathOf([])),
      headers: { 'accept-encoding': 'identity' },
    });
    for await (const piece of response) await call.output.raw(piece);
  }
}
