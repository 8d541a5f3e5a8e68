import type { FastifyReply } from 'fastify';
import { isSystemError } from '../../../../base/errors.ts';
import { SocketBody } from '../../../os/socket-body.ts';
import type { Move } from '../../../services/files/staged-file.ts';
import { incompleteBody } from './body.ts';

/** Larger bodies are moved directly; the connection cannot be reused afterwards. */
const MIN_BYTES = 1024 * 1024;
/** Idle timeout while the rest of a body is discarded. */
const DRAIN_TIMEOUT_MS = 10_000;

/**
 * The body of `length` bytes of `reply`'s request, moved from the socket to the file without passing through JavaScript:
 * first the bytes that have been read already, then functions that move what has arrived. Null when that is not possible.
 */
export function directBody(
  { request, raw: response }: FastifyReply,
  length: number | null,
): AsyncIterable<Buffer | Move> | null {
  const body = length !== null && length > MIN_BYTES ? SocketBody.take(request.raw) : null;
  if (!body) return null;
  response.shouldKeepAlive = false;
  const gone = new AbortController();
  request.raw.socket.once('close', () => gone.abort(incompleteBody()));
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
