import { EnvdError } from '../../../base/errors.ts';
import { PooledDigest } from '../../os/digest.ts';
import type { OpenFile } from '../../os/open-file.ts';

/** Those that RFC 9530's registry calls active, by their names there, which OpenSSL knows as well. */
export const DIGEST_ALGORITHMS = ['sha-256', 'sha-512'] as const;
export type DigestAlgorithm = (typeof DIGEST_ALGORITHMS)[number];

/** Read and taken in at once, in bytes. */
const CHUNK = 1024 * 1024;

/** Of the first `size` bytes of an open file, read in pieces that share one buffer. Throws `aborted` with `signal`. */
export async function digestOf(
  file: OpenFile,
  size: number,
  algorithm: DigestAlgorithm,
  signal: AbortSignal,
): Promise<Buffer> {
  const digest = new PooledDigest(algorithm);
  const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK, size));
  for (let position = 0; position < size; ) {
    if (signal.aborted) throw new EnvdError('aborted', 'nobody waits for the digest any more');
    const bytesRead = await file.read(buffer, Math.min(CHUNK, size - position), position);
    // Shorter by now: the download, which has announced its length, will break off as well.
    if (bytesRead === 0) break;
    await digest.update([buffer.subarray(0, bytesRead)]);
    position += bytesRead;
  }
  return digest.finish();
}
