import type { IncomingMessage } from 'node:http';

/** A reason phrase may have these characters (RFC 9112, section 4). */
const REASON = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Node's client reads this many headers, and drops further ones silently. */
const READ_HEADERS = 1000;

/**
 * The error for a response of a sandbox that cannot be forwarded. Its message gives the reason, with the response as the
 * subject.
 */
export class InvalidResponse extends Error {
  override readonly name = 'InvalidResponse';
}

/** Returns whether an error concerns the content of a response, and not the connection to the sandbox. */
export function isInvalidResponse(error: Error): boolean {
  return error instanceof InvalidResponse || ('code' in error && String(error.code).startsWith('HPE_'));
}

/**
 * Throws `InvalidResponse` for a head that cannot be forwarded, because Node's client accepts heads that its server refuses
 * to send.
 */
export function checkResponse({
  httpVersion,
  statusCode = 0,
  statusMessage = '',
  headers,
  rawHeaders,
}: IncomingMessage): void {
  if (!/^1\.[01]$/.test(httpVersion)) throw new InvalidResponse(`its version is HTTP/${httpVersion}`);
  if (statusCode < 200) throw new InvalidResponse(`its status is ${statusCode}`);
  if (!REASON.test(statusMessage)) throw new InvalidResponse('its reason phrase has control characters');
  if (rawHeaders.length >= 2 * READ_HEADERS)
    throw new InvalidResponse(`it has ${READ_HEADERS} headers or more`);
  const coding = headers['transfer-encoding'];
  // Any other coding belongs to the framing of the sandbox's message, which is not forwarded, so the client could not undo it.
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked')
    throw new InvalidResponse(`its transfer coding is not chunked`);
}
