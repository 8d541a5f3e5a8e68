import { setTimeout } from 'node:timers/promises';
import { isSystemError } from '../../../base/errors.ts';
import type { OpenFile } from './open-file.ts';

/** The first and the longest wait for the reader of a full pipe, in milliseconds. Each wait is twice the last. */
const FULL_PIPE_WAIT = [1, 64] as const;

/**
 * Writes all of `batch` at `position`, or at the current file offset if it is null, and repeats after short writes.
 * EAGAIN of a non-blocking descriptor is retried until `signal` aborts.
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

/** Returns the number of bytes written, or 0 when a pipe is full. */
async function writeSome(file: OpenFile, batch: readonly Buffer[], position: number | null): Promise<number> {
  try {
    return await file.writev(batch, position);
  } catch (error) {
    if (isSystemError(error, 'EAGAIN')) return 0;
    throw error;
  }
}

/** Returns `batch` without its first `count` bytes. */
function skip(batch: readonly Buffer[], count: number): readonly Buffer[] {
  let left = count;
  for (const [index, buffer] of batch.entries()) {
    if (left < buffer.length) return [buffer.subarray(left), ...batch.slice(index + 1)];
    left -= buffer.length;
  }
  return [];
}
