import { createHash } from 'node:crypto';
import type { OpenFile } from '../../linux/files/open-file.ts';

/** The active algorithms of RFC 9530's registry. OpenSSL uses the same names. */
export const DIGEST_ALGORITHMS = ['sha-256', 'sha-512'] as const;
export type DigestAlgorithm = (typeof DIGEST_ALGORITHMS)[number];

/** A read takes at most this many bytes, because hashing them blocks the event loop. */
const CHUNK = 256 * 1024;

/** Returns the digest of the first `size` bytes of an open file. Throws the reason of `signal` when it aborts. */
export async function digestOf(
  file: OpenFile,
  size: number,
  algorithm: DigestAlgorithm,
  signal: AbortSignal,
): Promise<Buffer> {
  const hash = createHash(algorithm);
  const buffer = Buffer.allocUnsafeSlow(Math.min(CHUNK, size));
  for (let position = 0; position < size; ) {
    signal.throwIfAborted();
    const bytesRead = await file.read(buffer, Math.min(CHUNK, size - position), position);
    // The file was truncated. The download, which has sent its length, fails too.
    if (bytesRead === 0) break;
    hash.update(buffer.subarray(0, bytesRead));
    position += bytesRead;
  }
  return hash.digest();
}
