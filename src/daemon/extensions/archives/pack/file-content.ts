import type { OpenFile } from '../../../linux/files/open-file.ts';
import type { BlockWriter } from '../format/block-writer.ts';

/**
 * Copies the first `size` bytes of an open file to the archive, and pads them. Returns false when the file ended early or
 * could not be read. The rest of it is then zeros, so that the archive stays well-formed.
 */
export async function* packContent(
  out: BlockWriter,
  file: OpenFile,
  size: number,
): AsyncGenerator<Buffer, boolean> {
  let isWhole = true;
  for (let done = 0; done < size; ) {
    const most = Math.min(out.room().length, size - done);
    const count = isWhole ? await file.read(out.room(), most, done).catch(() => 0) : 0;
    if (count === 0) isWhole = false;
    done += count > 0 ? count : out.zeros(most);
    out.advance(count);
    yield* out.takeFull();
  }
  out.pad();
  return isWhole;
}
