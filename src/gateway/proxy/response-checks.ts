import type { IncomingMessage } from 'node:http';

/** The characters of a reason phrase (RFC 9112, section 4). */
const REASON = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Node's client drops further headers without a word. */
const READ_HEADERS = 1000;

/** A response of a sandbox that cannot be forwarded; the message says why, with the response as its subject. */
export class InvalidResponse extends Error {
  override readonly name = 'InvalidResponse';
}

/** Whether an error is about what the sandbox has sent, not about reaching it. */
export function isInvalidResponse(error: Error): boolean {
  return error instanceof InvalidResponse || ('code' in error && String(error.code).startsWith('HPE_'));
}

/**
 * Throws `InvalidResponse` for the head of a response that cannot be forwarded: Node's client accepts heads that its
 * server refuses to send.
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
  // The client would have to undo any other coding in the sandbox's framing, which is not forwarded.
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked')
    throw new InvalidResponse(`its transfer coding is not chunked`);
}
