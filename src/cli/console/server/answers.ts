import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Failure, FailureReason } from '../../output/failure.ts';

/** The status, and the code as Connect names it, of a failure. */
const CODES: Readonly<Partial<Record<FailureReason, readonly [status: number, code: string]>>> = {
  usage: [400, 'invalid_argument'],
  unreachable: [502, 'unavailable'],
  refused: [403, 'permission_denied'],
  not_found: [404, 'not_found'],
  timeout: [504, 'deadline_exceeded'],
};
const MAX_BODY = 16 * 1024;
const BODY_MS = 10_000;

/** Answers with JSON. */
export function sendJson(response: ServerResponse, status: number, value: unknown): void {
  const text = JSON.stringify(value);
  response.writeHead(status, { 'content-type': 'application/json' }).end(text);
}

/** Answers with an error in the form of Connect, with which the daemon's own errors are told, too. */
export function answerError(response: ServerResponse, status: number, code: string, message: string): void {
  sendJson(response, status, { code, message });
}

export function sendFailure(response: ServerResponse, { reason, message }: Failure): void {
  const [status, code] = CODES[reason] ?? [500, 'unknown'];
  answerError(response, status, code, message);
}

/** The object in a small body in JSON; null for anything else. `most`: bytes. */
export async function readObject(
  request: IncomingMessage,
  most = MAX_BODY,
): Promise<Readonly<Record<string, unknown>> | null> {
  const timer = setTimeout(() => request.destroy(), BODY_MS);
  const pieces: Buffer[] = [];
  let length = 0;
  try {
    for await (const piece of request) {
      length += piece.length;
      if (length > most) return null;
      pieces.push(piece);
    }
    const value: unknown = JSON.parse(Buffer.concat(pieces).toString());
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
  }
}
