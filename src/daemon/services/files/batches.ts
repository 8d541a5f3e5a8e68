import { freeBuffer } from '../../../base/buffers.ts';

/** Limits of one batch, in bytes and pieces: larger writes make uploads faster. */
const BATCH_BYTES = 512 * 1024;
const BATCH_PIECES = 1024;

/**
 * Writes `content` in batches; collects the next batch while one is written. Pieces are released after they have been
 * written. Settles when no write is in progress; rejects with the first error of `content` or `write`.
 */
export async function writeInBatches(
  content: AsyncIterable<Buffer>,
  write: (batch: readonly Buffer[]) => Promise<void>,
): Promise<void> {
  let batch: Buffer[] = [];
  let bytes = 0;
  let underWay: Promise<void> = Promise.resolve();
  const flush = async () => {
    await underWay;
    underWay = writeAndRelease(batch, write);
    underWay.catch(() => {}); // Thrown at the next flush or at the end.
    batch = [];
    bytes = 0;
  };
  try {
    for await (const piece of content) {
      batch.push(piece);
      bytes += piece.length;
      if (bytes >= BATCH_BYTES || batch.length >= BATCH_PIECES) await flush();
    }
    if (batch.length > 0) await flush();
  } finally {
    await underWay.catch(() => {});
  }
  await underWay;
}

async function writeAndRelease(
  batch: readonly Buffer[],
  write: (batch: readonly Buffer[]) => Promise<void>,
): Promise<void> {
  await write(batch);
  for (const piece of batch) freeBuffer(piece);
}
