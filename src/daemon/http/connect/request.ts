// Reading the requests of RPCs: user, timeout and keepalive interval in the headers, and the body.
import type { IncomingHttpHeaders } from 'node:http';
import { freeAll } from '../../../base/buffers.ts';
import { EnvdError } from '../../../base/errors.ts';
import type { User } from '../../linux/system/users.ts';
import type { Guest } from '../../services/guest/guest.ts';
import type { CallScope } from '../admission/call-scope.ts';
import { nameIn } from '../admission/identity.ts';
import type { Codec } from './codec.ts';

/** The maximum of setTimeout, almost 25 days. */
const MAX_TIMER_MS = 0x7fffffff;
/**
 * Maximum size of a request message, also after decompression. A binary message is not copied when it is decoded; a JSON
 * text of 16 MiB is decoded within 50 ms.
 */
export const REQUEST_LIMIT_BYTES: Readonly<Record<Codec, number>> = {
  binary: 64 * 1024 * 1024,
  json: 16 * 1024 * 1024,
};
/** Maximum size of a message after decompression: a kilobyte may become a megabyte. */
export const DECOMPRESSED_LIMIT_BYTES = 4 * 1024 * 1024;

/**
 * The user on whose behalf an RPC runs: from HTTP basic authentication with a name and no password (RFC 7617), otherwise
 * the default user. Throws `unauthenticated` for an unknown user and for another scheme.
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

/** `Connect-Timeout-Ms`: at most ten digits; null (no limit) when absent or 0. Throws `invalid_argument`. */
export function timeoutOf(headers: IncomingHttpHeaders): number | null {
  const text = headers['connect-timeout-ms'];
  if (text === undefined) return null;
  if (!/^\d{1,10}$/.test(String(text)))
    throw new EnvdError('invalid_argument', `invalid Connect-Timeout-Ms '${text}': send at most 10 digits`);
  const milliseconds = Number(text);
  return milliseconds === 0 ? null : Math.min(milliseconds, MAX_TIMER_MS);
}

/** Default interval of keepalive messages. */
const KEEPALIVE_SECONDS = 90;

/** `Keepalive-Ping-Interval` in milliseconds; the default when absent or unusable. */
export function keepaliveMsOf(headers: IncomingHttpHeaders): number {
  const asked = String(headers['keepalive-ping-interval'] ?? '');
  const seconds = /^\d+$/.test(asked) ? Number(asked) : 0;
  return (seconds > 0 ? Math.min(seconds, Math.trunc(MAX_TIMER_MS / 1000)) : KEEPALIVE_SECONDS) * 1000;
}

/** Overhead that is counted for each piece of a body. */
const PIECE_BYTES = 256;

/**
 * Reads the whole body; `call` counts the bytes of a large one. Throws the reason of the abort, `resource_exhausted` when the
 * body is larger than `limit`, `aborted` when the client disconnects.
 */
export async function readBody(call: CallScope, limit: number): Promise<Buffer> {
  const { request } = call;
  call.askForBody();
  const { promise, resolve, reject } = call.pending<void>();
  const pieces: Buffer[] = [];
  let length = 0;
  request.on('data', (piece: Buffer) => {
    length += piece.length;
    pieces.push(piece);
    call.hold(length + pieces.length * PIECE_BYTES);
    if (length > limit) reject(tooLarge(limit));
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
  return new EnvdError('resource_exhausted', `request is larger than ${limit} bytes`);
}
