import { promisify } from 'node:util';
import zlib from 'node:zlib';
import type { Download } from '../../../services/files/download.ts';
import { acceptsIdentity, type Coding, requireCoding } from './content-headers.ts';
import type { DownloadLimits } from './download-limits.ts';

/**
 * Level 1 is the fastest one, because better compression would be slower than a guest's network. It is written as a number,
 * because reading `zlib.constants` would load zlib at each start.
 */
export const GZIP = { level: 1, chunkSize: 64 * 1024 };

export const gzip = promisify<Buffer, zlib.ZlibOptions, Buffer>(zlib.gzip);

/** A body below this many bytes fits into one packet either way. */
const MIN_BYTES = 1024;
/** Each part of a sample has this many bytes. */
const SAMPLE_BYTES = 32 * 1024;
/** A file from this many bytes is also sampled in its middle, because its start may be a header of another kind. */
const LARGE_BYTES = 1024 * 1024;
/** Compression pays when it leaves at most this share of each part. */
const MAX_SHARE = 0.9;

/**
 * Returns whether compressing a download saves at least a tenth of its bytes, judged by samples. The result is the same as long as
 * the file is. It is true when the size is not known. Throws what reading the file throws, and `resource_exhausted` at the limits of
 * all downloads.
 */
export async function compressionPays(download: Download, limits: DownloadLimits): Promise<boolean> {
  const { size } = download;
  if (size === null) return true;
  if (size < MIN_BYTES) return false;
  const release = download.isSmall ? () => {} : limits.take(SAMPLE_BYTES);
  try {
    return await everyPartShrinks(download, size);
  } finally {
    release();
  }
}

async function everyPartShrinks(download: Download, size: number): Promise<boolean> {
  const starts = size < LARGE_BYTES ? [0] : [0, Math.floor(size / 2)];
  for (const start of starts) {
    if (!(await shrinks(await download.readPart(start, Math.min(size, start + SAMPLE_BYTES))))) return false;
  }
  return true;
}

async function shrinks(sample: Buffer): Promise<boolean> {
  return (await gzip(sample, GZIP)).length <= sample.length * MAX_SHARE;
}

/** A stream, and the coding with which it is sent. */
export interface CodedStream {
  readonly coding: Coding;
  /** The whole stream, not yet coded. Its first bytes have been read. */
  readonly chunks: AsyncGenerator<Buffer>;
}

/**
 * Chooses the coding of a stream of unknown content, judged by its start. Throws `not_acceptable` when the client accepts no coding,
 * and what reading the start throws.
 */
export async function codeStream(
  acceptEncoding: string | undefined,
  chunks: AsyncGenerator<Buffer>,
): Promise<CodedStream> {
  const coding = requireCoding(acceptEncoding);
  const start: Buffer[] = [];
  for (let length = 0; length < SAMPLE_BYTES; length += start.at(-1)?.length ?? 0) {
    const next = await chunks.next();
    if (next.done) break;
    start.push(next.value);
  }
  const isPlain =
    coding === 'gzip' && acceptsIdentity(acceptEncoding) && !(await shrinks(Buffer.concat(start)));
  return { coding: isPlain ? 'identity' : coding, chunks: rejoin(start, chunks) };
}

/** Frees each chunk of the start when the next one is requested. */
async function* rejoin(start: Buffer[], rest: AsyncGenerator<Buffer>): AsyncGenerator<Buffer> {
  try {
    for (let chunk = start.shift(); chunk; chunk = start.shift()) yield chunk;
    yield* rest;
  } finally {
    await rest.return(undefined);
  }
}
