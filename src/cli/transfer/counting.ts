import { Readable } from 'node:stream';
import { Failure } from '../output/failure.ts';
import type { Progress } from '../output/progress.ts';

/** Returns a stream of the first `size` bytes of `source`, which reports them to `progress`. Fails if there are fewer. */
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
    // A file that has grown meanwhile is sent only up to the size that was announced.
    const taken = piece.length > size - length ? piece.subarray(0, size - length) : piece;
    length += taken.length;
    progress.advance(taken.length, name);
    yield taken;
    if (length === size) break;
  }
  if (length < size) throw new Failure('failed', `${name} has become shorter while it was read`);
}
