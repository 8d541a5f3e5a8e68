import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import { pipeline, type Readable } from 'node:stream';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { giveBack } from '../../../../base/buffers.ts';
import { EnvdError } from '../../../../base/errors.ts';
import type { DigestAlgorithm } from '../../../services/files/digest.ts';
import type { Download } from '../../../services/files/download.ts';
import { sendError } from '../../errors.ts';
import { withClientSignal } from '../../requests.ts';
import { formatDigest, wantedDigest } from './digests.ts';
import { type DownloadPlan, planDownload } from './download-plan.ts';

/** A guest's network is faster than a better compression. */
const GZIP = { level: zlib.constants.Z_BEST_SPEED, chunkSize: 64 * 1024 };

const gzip = promisify<Buffer, zlib.ZlibOptions, Buffer>(zlib.gzip);

/** Answers with the download, which it takes over. */
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
 * What `Want-Repr-Digest` asks for (RFC 9530, section 4): of the whole file, also with a part of it. Null when
 * nothing is wanted, or what is sent is coded: nobody knows those bytes before they are sent.
 */
function digestAlgorithm(request: FastifyRequest, { status, coding }: DownloadPlan): DigestAlgorithm | null {
  return coding === 'identity' && status < 300 ? wantedDigest(request.headers) : null;
}

async function compress(body: Buffer | Readable): Promise<Buffer | Readable> {
  if (Buffer.isBuffer(body)) return gzip(body, GZIP);
  // Errors reach the reader of the stream; the callback is there for the destruction of both ends.
  return pipeline(body, zlib.createGzip(GZIP), () => {});
}

function rangeNotSatisfiable(): Error {
  return Object.assign(new Error('none of the ranges lies in the file'), { statusCode: 416 });
}

/**
 * Sends `content`, of which nobody else may use the pieces, as the body of an answer whose headers have been set.
 * Throws when not even the first piece can be had; later, a failure ends the connection, so that nobody takes what
 * was sent for the whole.
 */
async function sendStream(reply: FastifyReply, content: Readable): Promise<FastifyReply> {
  const pieces: AsyncIterator<Buffer> = content[Symbol.asyncIterator]();
  const first = await pieces.next();
  reply.hijack();
  const response = reply.raw;
  response.writeHead(reply.statusCode, reply.getHeaders() as OutgoingHttpHeaders);
  const write = writerOf(response);
  try {
    for (let next = first; !next.done; next = await pieces.next()) {
      await write(next.value);
      giveBack(next.value);
    }
    response.end();
  } catch (error) {
    if (!response.destroyed) reply.log.warn({ err: error }, 'download broke off');
    response.destroy();
  } finally {
    await pieces.return?.();
  }
  return reply;
}

/**
 * Returns a function that writes a piece and resolves when it has left the process. It throws `aborted` when the client
 * is gone: Node may never call back for a write that was under way when its connection was destroyed.
 */
function writerOf(response: ServerResponse): (piece: Buffer) => Promise<void> {
  let fail: (reason: Error) => void = () => {};
  response.once('close', () => fail(new EnvdError('aborted', 'client has gone')));
  return (piece) =>
    new Promise((resolve, reject) => {
      fail = reject;
      response.write(piece, (error) => (error ? reject(error) : resolve()));
    });
}
