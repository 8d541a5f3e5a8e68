import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { pipeline, type Readable } from 'node:stream';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { freeBuffer } from '../../../../base/buffers.ts';
import { EnvdError } from '../../../../base/errors.ts';
import type { DigestAlgorithm } from '../../../services/files/digest.ts';
import type { Download } from '../../../services/files/download.ts';
import { sendError } from '../../errors.ts';
import { withClientSignal } from '../../requests.ts';
import { formatDigest, wantedDigest } from './digests.ts';
import { type DownloadPlan, planDownload } from './download-plan.ts';

/** The fastest level: the network of a guest is faster than better compression. */
export const GZIP = { level: zlib.constants.Z_BEST_SPEED, chunkSize: 64 * 1024 };

const gzip = promisify<Buffer, zlib.ZlibOptions, Buffer>(zlib.gzip);

/** Sends the download, and closes it in every case. */
export async function sendDownload(
  request: FastifyRequest,
  reply: FastifyReply,
  download: Download,
): Promise<FastifyReply> {
  const plan = await planOrClose(request, reply, download);
  if (plan.status === 416 || plan.status === 304 || request.method === 'HEAD') {
    await download[Symbol.asyncDispose]();
    reply.headers(plan.headers);
    if (plan.status === 416) return sendError(reply, rangeNotSatisfiable());
    return reply.removeHeader('cache-control').code(plan.status).send();
  }
  const body = download.read(plan.pieces);
  const coded = plan.coding === 'gzip' ? await compress(body) : body;
  reply.headers(plan.headers).removeHeader('cache-control').code(plan.status);
  return Buffer.isBuffer(coded) ? reply.send(coded) : sendStream(reply, coded);
}

async function planOrClose(
  request: FastifyRequest,
  reply: FastifyReply,
  download: Download,
): Promise<DownloadPlan> {
  try {
    const plan = planDownload(request.method, request.headers, download);
    const algorithm = digestAlgorithm(request, plan);
    if (algorithm === null) return plan;
    const digest = await withClientSignal(reply, (signal) => download.digest(algorithm, signal));
    if (digest === null) return plan;
    return { ...plan, headers: { ...plan.headers, 'repr-digest': formatDigest(algorithm, digest) } };
  } catch (error) {
    await download[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * The algorithm wanted by `Want-Repr-Digest` (RFC 9530, section 4); the digest is of the whole file, also with ranges.
 * Null when none is wanted, or the response is coded: those bytes are unknown before they are sent.
 */
function digestAlgorithm(request: FastifyRequest, { status, coding }: DownloadPlan): DigestAlgorithm | null {
  return coding === 'identity' && status < 300 ? wantedDigest(request.headers) : null;
}

async function compress(body: Buffer | Readable): Promise<Buffer | Readable> {
  if (Buffer.isBuffer(body)) return gzip(body, GZIP);
  // Errors reach the reader of the returned stream; `pipeline` destroys both streams.
  return pipeline(body, zlib.createGzip(GZIP), () => {});
}

function rangeNotSatisfiable(): Error {
  return Object.assign(new Error('none of the ranges lies in the file'), { statusCode: 416 });
}

/**
 * Sends `content` as the body, and frees its chunks afterwards. The headers have been set. Throws when the first chunk
 * cannot be read; a later error destroys the connection, so that the client sees an incomplete body.
 */
export async function sendStream(reply: FastifyReply, content: AsyncIterable<Buffer>): Promise<FastifyReply> {
  const pieces: AsyncIterator<Buffer> = content[Symbol.asyncIterator]();
  const first = await pieces.next();
  reply.hijack();
  const response = reply.raw;
  response.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders);
  const write = writerOf(response);
  try {
    for (let next = first; !next.done; next = await pieces.next()) {
      await write(next.value);
      freeBuffer(next.value);
    }
    response.end();
  } catch (error) {
    if (!response.destroyed) reply.log.warn({ err: error }, 'download aborted');
    response.destroy();
  } finally {
    await pieces.return?.();
  }
  return reply;
}

/**
 * Returns a function that writes a piece and resolves when the kernel has taken it. It throws `aborted` when the client
 * disconnects: Node may never call back for a write in progress when its connection is destroyed.
 */
function writerOf(response: ServerResponse): (piece: Buffer) => Promise<void> {
  let fail: (reason: Error) => void = () => {};
  response.once('close', () => fail(new EnvdError('aborted', 'client disconnected')));
  return (piece) =>
    new Promise((resolve, reject) => {
      fail = reject;
      response.write(piece, (error) => (error ? reject(error) : resolve()));
    });
}
