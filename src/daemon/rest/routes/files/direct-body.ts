import type { FastifyReply } from 'fastify';
import { isSystemError } from '../../../../base/errors.ts';
import { SocketBody } from '../../../os/socket-body.ts';
import type { Move } from '../../../services/files/staged-file.ts';
import { brokenOff } from './body.ts';

/** Bodies up to this size are not worth the connection, which ends with the answer. */
const SMALL = 1024 * 1024;
/** How long a client may send nothing of a body that nobody wants any more. */
const DRAIN_LIMIT_MS = 10_000;

/** The body of `reply`'s request, `length` bytes, in pieces that move themselves to a file; null where it cannot be had. */
export function directBody(
  { request, raw: response }: FastifyReply,
  length: number | null,
): AsyncIterable<Buffer | Move> | null {
  const body = length !== null && length > SMALL ? SocketBody.take(request.raw) : null;
  if (!body) return null;
  response.shouldKeepAlive = false;
  const gone = new AbortController();
  request.raw.socket.once('close', () => gone.abort(brokenOff()));
  return piecesOf(body, gone.signal);
}

async function* piecesOf(body: SocketBody, gone: AbortSignal): AsyncGenerator<Buffer | Move> {
  const move: Move = (file, position) =>
    body.moveTo(file, position).catch((error) => Promise.reject(explain(error)));
  try {
    yield* body.before;
    while (body.left > 0) {
      await body.arrival(gone);
      yield move;
    }
  } finally {
    void drain(body);
  }
}

/** A client reads its answer when it has been able to send everything. */
async function drain(body: SocketBody): Promise<void> {
  using _ = body;
  try {
    while (body.left > 0) {
      await body.arrival(AbortSignal.timeout(DRAIN_LIMIT_MS));
      await body.moveTo(null, 0);
    }
  } catch {
    // Nobody waits for what becomes of it.
  }
}

function explain(error: unknown): unknown {
  return isSystemError(error, 'ECONNRESET', 'ETIMEDOUT') ? brokenOff(error) : error;
}
