import { Readable } from 'node:stream';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';

/** Content on its way: its bytes are counted, and there must be exactly `size` of them. */
export function counting(source: Readable, size: number, name: string, progress: Progress): Readable {
  return Readable.from(counted(source, size, name, progress), { objectMode: false });
}

async function* counted(
  source: Readable,
  size: number,
  name: string,
  progress: Progress,
): AsyncGenerator<Buffer> {
  let length = 0;
  for await (const piece of source) {
    // What has grown meanwhile ends where it ended when it was looked at.
    const taken = piece.length > size - length ? piece.subarray(0, size - length) : piece;
    length += taken.length;
    progress.advance(taken.length, name);
    yield taken;
    if (length === size) break;
  }
  if (length < size) throw new Failure('failed', `${name} has become shorter while it was read`);
}
