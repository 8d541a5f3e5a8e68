// Reads the requests of RPCs: the user, the timeout and the keepalive interval in the headers, and the body.
import type { IncomingHttpHeaders } from 'node:http';
import { freeAll } from '../../../base/buffers.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { User } from '../../linux/system/users.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { nameIn } from '../admission/identity.ts';
import type { Codec } from './codec.ts';

/** setTimeout() takes at most this time, which is almost 25 days. */
const MAX_TIMER_MS = 0x7fffffff;
/**
 * A request message may have so many bytes. The limit for JSON is lower, because decoding JSON blocks the event loop, whereas
 * decoding a binary message does not even copy its bytes.
 */
export const REQUEST_LIMIT_BYTES: Readonly<Record<Codec, number>> = {
  binary: 64 * 1024 * 1024,
  json: 16 * 1024 * 1024,
};
/** A compressed message may have so many bytes after decompression, because a kilobyte may become a megabyte. */
export const DECOMPRESSED_LIMIT_BYTES = 4 * 1024 * 1024;

/**
 * Returns the user on whose behalf an RPC runs: the one that HTTP basic authentication names, without a password, or else the
 * default user. Throws `unauthenticated` for an unknown user and for another scheme. Source: RFC 7617.
 */
export function callerOf({ request }: CallScope, guest: Guest): User {
  const { authorization } = request.headers;
  return guest.user(authorization === undefined ? null : userNameOf(authorization));
}

function userNameOf(authorization: string): string {
  const name = nameIn(authorization);
  if (name !== undefined) return name;
  throw new EnvdError('unauthenticated', "authorization must be 'Basic' with a user name and no password");
}

/** Returns `Connect-Timeout-Ms`; null (no limit) when it is absent or 0. Throws `invalid_argument` unless it is 1 to 10 digits. */
export function timeoutOf(headers: IncomingHttpHeaders): number | null {
  const text = headers['connect-timeout-ms'];
  if (text === undefined) return null;
  if (!/^\d{1,10}$/.test(String(text)))
    throw new EnvdError('invalid_argument', `invalid Connect-Timeout-Ms '${text}': send at most 10 digits`);
  const milliseconds = Number(text);
  return milliseconds === 0 ? null : Math.min(milliseconds, MAX_TIMER_MS);
}

/** The default interval of keepalive messages. */
const KEEPALIVE_SECONDS = 90;

/** Returns `Keepalive-Ping-Interval` in milliseconds; the default when it is absent or unusable. */
export function keepaliveMsOf(headers: IncomingHttpHeaders): number {
  const asked = String(headers['keepalive-ping-interval'] ?? '');
  const seconds = /^\d+$/.test(asked) ? Number(asked) : 0;
  return (seconds > 0 ? Math.min(seconds, Math.trunc(MAX_TIMER_MS / 1000)) : KEEPALIVE_SECONDS) * 1000;
}

/** Each piece of a body is counted with this overhead. */
const PIECE_BYTES = 256;

/**
 * Reads the whole body. The bytes of a large one count for `call`. Throws `resource_exhausted`, or what `refusal` makes, when the
 * body is larger than `limit` bytes, `aborted` when the client disconnects, and the reason when the call is aborted.
 */
export async function readBody(
  call: CallScope,
  limit: number,
  refusal: (limit: number) => Error = tooLarge,
): Promise<Buffer> {
  const { request } = call;
  call.askForBody();
  const { promise, resolve, reject } = call.pending<void>();
  const pieces: Buffer[] = [];
  let length = 0;
  request.on('data', (piece: Buffer) => {
    length += piece.length;
    pieces.push(piece);
    call.hold(length + pieces.length * PIECE_BYTES);
    if (length > limit) reject(refusal(limit));
  });
  request.on('end', resolve);
  request.on('error', (cause) => reject(new EnvdError('aborted', 'client disconnected', { cause })));
  try {
    await promise;
    return joined(pieces);
  } catch (error) {
    request.removeAllListeners('data').resume();
    freeAll(pieces);
    throw error;
  }
}

function joined(pieces: Buffer[]): Buffer {
  if (pieces.length === 1 && pieces[0]) return pieces[0];
  const whole = Buffer.concat(pieces);
  freeAll(pieces);
  return whole;
}

export function tooLarge(limit: number): EnvdError {
  return new EnvdError('resource_exhausted', `request is larger than ${limit} bytes: send less at a time`);
}
