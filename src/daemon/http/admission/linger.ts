import type { IncomingMessage } from 'node:http';
import { monotonicMs } from '../../../base/monotonic.ts';

/** After its response a client may send so much more, for so long: one that sends everything before it reads gets the response. */
const LINGER = { milliseconds: 5000, bytes: 16 * 1024 * 1024 };

const CHECK_INTERVAL_MS = 100;

/**
 * Must be called after the response to a request. Unless the request has arrived whole, the rest of it is discarded, and at the limits
 * the connection is destroyed.
 */
export function endUnlessComplete(request: IncomingMessage, limits = LINGER): void {
  const { socket } = request;
  if (request.complete || request.destroyed || socket.destroyed) return;
  const latest = monotonicMs() + limits.milliseconds;
  const most = socket.bytesRead + limits.bytes;
  const timer = setInterval(() => {
    if (request.complete) clearInterval(timer);
    else if (monotonicMs() > latest || socket.bytesRead > most) request.destroy();
  }, CHECK_INTERVAL_MS);
  request.once('close', () => clearInterval(timer));
}
