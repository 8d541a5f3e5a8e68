import type { FastifyReply } from 'fastify';
import { isSystemError } from '../../../../base/errors.ts';
import { SocketBody } from '../../../linux/network/socket-body.ts';
import type { Sink } from '../../../services/files/uploads/sink.ts';
import { incompleteBody } from './body.ts';

/** Larger bodies are received directly; the connection cannot be reused afterwards. */
const MIN_BYTES = 1024 * 1024;
/** Idle timeout while the rest of a body is discarded. */
const DRAIN_TIMEOUT_MS = 10_000;

/**
 * Makes `sink` receive the body of `reply`'s request from the socket, without passing it through JavaScript. `length`:
 * its bytes. Returns false, without effect on the request, when that is impossible or not worthwhile.
 */
export async function receiveDirectly(
  { request, raw: response }: FastifyReply,
  length: number | null,
  sink: Sink,
): Promise<boolean> {
  if (length === null || length <= MIN_BYTES || !(await sink.canReceive())) return false;
  const body = SocketBody.take(request.raw);
  if (!body) return false;
  response.shouldKeepAlive = false;
  const gone = new AbortController();
  request.raw.socket.once('close', () => gone.abort(incompleteBody()));
  if (request.raw.socket.destroyed) gone.abort(incompleteBody());
  try {
    await receiveAll(body, sink, gone.signal);
  } finally {
    void drain(body);
  }
  return true;
}

async function receiveAll(body: SocketBody, sink: Sink, gone: AbortSignal): Promise<void> {
  if (body.before.length > 0) await sink.write(body.before);
  const arrivals = {
    moveTo: (file: number, position: number) =>
      body.moveTo(file, position).catch((error) => Promise.reject(explain(error))),
  };
  while (body.left > 0) {
    await body.arrival(gone);
    await sink.receive(arrivals);
  }
}

/** Discards the rest: many clients read the response only after they have sent everything. */
async function drain(body: SocketBody): Promise<void> {
  using _ = body;
  try {
    while (body.left > 0) {
      await body.arrival(AbortSignal.timeout(DRAIN_TIMEOUT_MS));
      await body.moveTo(null, 0);
    }
  } catch {
    // The result is not needed.
  }
}

function explain(error: unknown): unknown {
  return isSystemError(error, 'ECONNRESET', 'ETIMEDOUT') ? incompleteBody(error) : error;
}
