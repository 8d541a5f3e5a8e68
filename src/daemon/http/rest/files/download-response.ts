import { pipeline, type Readable } from 'node:stream';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { HttpError } from '../../../../base/errors.ts';
import { SocketOutput } from '../../../linux/network/socket-output.ts';
import { readPieces } from '../../../services/files/content.ts';
import type { Download, FileRange } from '../../../services/files/download.ts';
import type { CallScope } from '../../admission/call-scope.ts';
import { sendError } from '../../admission/errors.ts';
import { sendBody, sendStream, sendWhole, writeAndFree } from './body-writer.ts';
import { compressionPays, GZIP, gzip } from './compression.ts';
import type { ContentDigests } from './content-digests.ts';
import { acceptsIdentity } from './content-headers.ts';
import { type DownloadLimits, exhausted } from './download-limits.ts';
import { type DownloadPlan, planDownload } from './download-plan.ts';

/** Sends the download, and closes it in any case. Throws `resource_exhausted` at the limits of all downloads. */
export async function sendDownload(
  request: FastifyRequest,
  reply: FastifyReply,
  download: Download,
  limits: DownloadLimits,
  digests: ContentDigests | null,
): Promise<FastifyReply> {
  await using _ = download;
  const wantsDigest = digests?.isWanted(request.headers) ?? false;
  const planned = await planWithin(request, reply, download, limits, wantsDigest);
  const plan = digests ? await withDigest(request, planned, download, digests) : planned;
  const range = plan.coding === 'identity' ? download.rangeOf(plan.pieces) : null;
  if (plan.status === 416) {
    const error = new HttpError(416, 'none of the ranges lies in the file');
    return sendError(reply.headers(plan.headers), error);
  }
  if (plan.status === 304 || request.method === 'HEAD') return begin(reply, plan).send();
  if (range) return await sendRange(reply, plan, { download, range, limits });
  const body = download.read(plan.pieces);
  const coded = plan.coding === 'gzip' ? await compress(body) : body;
  if (!Buffer.isBuffer(coded)) return await sendStream(begin(reply, plan), coded);
  limits.hold(coded.length, reply.raw);
  sendWhole(begin(reply, plan), coded);
  return reply;
}

function begin(reply: FastifyReply, { status, headers }: DownloadPlan): FastifyReply {
  return reply.headers(headers).code(status);
}

/**
 * Adds the digest that the client wants. A coded response has none, because coded bytes are unknown before they are sent. The digest is
 * of the whole file, also with ranges. Source: RFC 9530, section 4.
 */
async function withDigest(
  { headers, call }: FastifyRequest,
  plan: DownloadPlan,
  download: Download,
  digests: ContentDigests,
): Promise<DownloadPlan> {
  if (plan.coding !== 'identity' || plan.status >= 300) return plan;
  const described = await digests.describe(headers, download, call.transfer(0));
  return { ...plan, headers: { ...plan.headers, ...described } };
}

/**
 * Plans the response. It is not compressed where that does not pay, or where too many bodies are being compressed, if the client
 * accepts that.
 */
async function planWithin(
  { method, headers }: FastifyRequest,
  { raw: response }: FastifyReply,
  download: Download,
  limits: DownloadLimits,
  wantsDigest: boolean,
): Promise<DownloadPlan> {
  const plan = planDownload(method, headers, download, wantsDigest);
  const mayBePlain = acceptsIdentity(headers['accept-encoding']) && download.size !== null;
  const plain = () =>
    planDownload(method, { ...headers, 'accept-encoding': 'identity' }, download, wantsDigest);
  if (plan.coding === 'gzip' && mayBePlain && !(await compressionPays(download, limits))) return plain();
  const isDirect = plan.coding === 'identity' && download.rangeOf(plan.pieces) !== null;
  if (method === 'HEAD' || plan.status >= 300 || download.isSmall || isDirect) return plan;
  if (limits.mayStream(response)) return plan;
  if (plan.coding !== 'identity' && mayBePlain) return plain();
  throw exhausted('all places for compressed bodies and several ranges are taken');
}

async function compress(body: Buffer | AsyncIterable<Buffer>): Promise<Buffer | Readable> {
  if (Buffer.isBuffer(body)) return gzip(body, GZIP);
  // Errors reach the reader of the returned stream; `pipeline` destroys both streams.
  return pipeline(body, zlib.createGzip(GZIP), () => {});
}

interface Sent {
  readonly download: Download;
  readonly range: FileRange;
  readonly limits: DownloadLimits;
}

/** This many bytes of a range are read before the head is sent, so that an error of reading them can still be answered. */
const FIRST_BYTES = 16 * 1024;

/**
 * Sends a range of a file as the body. After the first bytes, the kernel sends from the file to the connection, so that a client
 * that does not read takes no memory of the daemon. Throws what `sendStream` throws.
 */
async function sendRange(
  reply: FastifyReply,
  plan: DownloadPlan,
  { download, range, limits }: Sent,
): Promise<FastifyReply> {
  const { start, end } = range;
  const head = Math.min(FIRST_BYTES, end - start);
  const release = limits.take(head);
  try {
    const first = await download.readPart(start, start + head);
    await sendBody(begin(reply, plan), async (write) => {
      await write(first);
      release();
      const position = await sendFromFile(reply.request.call, { ...range, start: start + first.length });
      // Reading the rest also finds out if the file was truncated.
      if (position === end) return;
      const rest = readPieces(download.path, range.file, [{ start: position, end }]);
      for await (const piece of rest) await writeAndFree(write, piece);
    });
  } finally {
    release();
  }
  return reply;
}

/** Lets the kernel send a range. Returns the position of the first byte that was not sent. */
async function sendFromFile(call: CallScope, { file, start, end }: FileRange): Promise<number> {
  using output = SocketOutput.of(call.response);
  if (!output) return start;
  try {
    return await output.send(file, start, end, call.transfer(0));
  } finally {
    call.sentFromFile = output.sent;
  }
}
