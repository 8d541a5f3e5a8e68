import { giveBack } from '../../../base/buffers.ts';

/** Bytes and pieces collected before they are written at once: larger writes are what makes uploads fast. */
const BATCH_BYTES = 512 * 1024;
const BATCH_PIECES = 1024;

/**
 * Hands `content` to `write` in batches, the next one being collected while one is written. The pieces are gone
 * when they have been written. Settles when no write is under way any more; fails with the first error of either
 * side.
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
    underWay = writeAndForget(batch, write);
    underWay.catch(() => {}); // Seen at the next flush, or at the end.
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

async function writeAndForget(
  batch: readonly Buffer[],
  write: (batch: readonly Buffer[]) => Promise<void>,
): Promise<void> {
  await write(batch);
  for (const piece of batch) giveBack(piece);
}
