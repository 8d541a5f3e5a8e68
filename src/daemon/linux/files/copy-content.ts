import { isSystemError } from '../../../base/errors.ts';
import { native } from '../system/native.ts';
import type { OpenFile } from './open-file.ts';
import { writeFully } from './write-fully.ts';

/** Each read and write has at most this many bytes. */
const CHUNK = 256 * 1024;
/** A copy by reads and writes would meet these errors, too. */
const FINAL = ['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO'];
const NEVER = AbortSignal.any([]);

/**
 * Copies at most `length` bytes from the start of `source` to `offset` of `target`. Returns the number of bytes, which
 * is less than `length` at the end of the source. The kernel does the copy where both file systems support that. On
 * mounts that may not answer it does not, because there each step must be a request of its own.
 */
export async function copyContent(
  source: OpenFile,
  target: OpenFile,
  offset = 0,
  length = Number.MAX_SAFE_INTEGER,
): Promise<number> {
  const isQuick = source.lane.mounts.length + target.lane.mounts.length === 0;
  let done = isQuick ? await copyInKernel(source, target, offset, length) : 0;
  // The kernel copies nothing from files of /proc.
  const buffer = done < length ? Buffer.allocUnsafeSlow(Math.min(CHUNK, length)) : Buffer.alloc(0);
  while (done < length) {
    const count = await source.read(buffer, Math.min(CHUNK, length - done), done);
    if (count === 0) break;
    await writeFully(target, [buffer.subarray(0, count)], offset + done, NEVER);
    done += count;
  }
  return done;
}

/** Returns 0 when the kernel cannot copy, for instance between two file systems. */
async function copyInKernel(
  source: OpenFile,
  target: OpenFile,
  offset: number,
  length: number,
): Promise<number> {
  try {
    return await target.run(() => source.during(native.copyRange(source.fd, target.fd, offset, length)));
  } catch (error) {
    if (!isSystemError(error) || FINAL.includes(error.code)) throw error;
    return 0;
  }
}
