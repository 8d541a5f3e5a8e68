import { setTimeout } from 'node:timers/promises';
import { isSystemError } from '../../base/errors.ts';
import type { OpenFile } from './open-file.ts';

/** How long to wait for the reader of a full pipe, ms: twice as long each time, up to the second number. */
const FULL_PIPE_WAIT = [1, 64] as const;

/**
 * Writes all of `batch` at `position`, or where the file stands when that is null, however little the kernel takes
 * at a time. A descriptor in non-blocking mode is tried again until it takes some, or `signal` aborts.
 */
export async function writeFully(
  file: OpenFile,
  batch: readonly Buffer[],
  position: number | null,
  signal: AbortSignal,
): Promise<void> {
  let rest = batch;
  let offset = position;
  const [shortest, longest] = FULL_PIPE_WAIT;
  let wait: number = shortest;
  while (rest.length > 0) {
    const written = await writeSome(file, rest, offset);
    if (written === 0) await setTimeout(wait, undefined, { signal });
    wait = written === 0 ? Math.min(wait * 2, longest) : shortest;
    rest = skip(rest, written);
    if (offset !== null) offset += written;
  }
}

/** Bytes written; none when a pipe is full. */
async function writeSome(file: OpenFile, batch: readonly Buffer[], position: number | null): Promise<number> {
  try {
    return await file.writev(batch, position);
  } catch (error) {
    if (isSystemError(error, 'EAGAIN')) return 0;
    throw error;
  }
}

/** What is left of `batch` after `count` bytes. */
function skip(batch: readonly Buffer[], count: number): readonly Buffer[] {
  let left = count;
  for (const [index, buffer] of batch.entries()) {
    if (left < buffer.length) return [buffer.subarray(left), ...batch.slice(index + 1)];
    left -= buffer.length;
  }
  return [];
}
