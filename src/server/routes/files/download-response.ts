import { pipeline, type Readable } from 'node:stream';
import { promisify } from 'node:util';
import zlib from 'node:zlib';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Download } from '../../../services/files/download.ts';
import { sendError } from '../../errors.ts';
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
  const plan = await planOrClose(request, download);
  if (plan.status === 416 || plan.status === 304 || request.method === 'HEAD') {
    await download[Symbol.asyncDispose]();
    reply.headers(plan.headers);
    if (plan.status === 416) return sendError(reply, rangeNotSatisfiable());
    return reply.removeHeader('cache-control').code(plan.status).send();
  }
  const body = download.read(plan.pieces);
  const coded = plan.coding === 'gzip' ? await compress(body) : body;
  return reply.headers(plan.headers).removeHeader('cache-control').code(plan.status).send(coded);
}

async function planOrClose(request: FastifyRequest, download: Download): Promise<DownloadPlan> {
  try {
    return planDownload(request.method, request.headers, download);
  } catch (error) {
    await download[Symbol.asyncDispose]();
    throw error;
  }
}

async function compress(body: Buffer | Readable): Promise<Buffer | Readable> {
  if (Buffer.isBuffer(body)) return gzip(body, GZIP);
  // Errors reach the reader of the stream; the callback is there for the destruction of both ends.
  return pipeline(body, zlib.createGzip(GZIP), () => {});
}

function rangeNotSatisfiable(): Error {
  return Object.assign(new Error('none of the ranges lies in the file'), { statusCode: 416 });
}
