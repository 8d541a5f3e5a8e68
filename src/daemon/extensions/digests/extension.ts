import { hash } from 'node:crypto';
import type { Extension } from '../../http/extension.ts';
import type { Download } from '../../services/files/download.ts';
import { announcedDigests, DigestCheck, formatDigest, wantedDigest } from './digests.ts';
import { type DigestAlgorithm, digestOf } from './file-digest.ts';

/** Adds the digests of RFC 9530: those of uploads are checked, and downloads have one if the client wants it. */
export function digestsExtension(): Extension {
  return {
    digests: {
      check(headers) {
        const digests = announcedDigests(headers);
        return digests.length > 0 ? new DigestCheck(digests) : null;
      },
      isWanted: (headers) => wantedDigest(headers) !== null,
      async describe(headers, download, signal) {
        const algorithm = wantedDigest(headers);
        const digest = algorithm && (await digestOfDownload(download, algorithm, signal));
        return algorithm && digest ? { 'repr-digest': formatDigest(algorithm, digest) } : {};
      },
    },
  };
}

/** Returns null if the size is not known. */
async function digestOfDownload(
  { content, size }: Download,
  algorithm: DigestAlgorithm,
  signal: AbortSignal,
): Promise<Buffer | null> {
  if (Buffer.isBuffer(content)) return hash(algorithm, content, 'buffer');
  return size === null ? null : digestOf(content, size, algorithm, signal);
}
