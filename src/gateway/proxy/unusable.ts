import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** What may come before the head of an answer is complete, in bytes: provisional answers, and the head itself. */
const HEAD_LIMIT = 64 * 1024;
/** What a reason phrase may hold (RFC 9112, 4). */
const REASON = /^[\t\x20-\x7e\x80-\xff]*$/;

/** An answer of a sandbox that cannot be passed on; the message says why. */
export class UnusableAnswer extends Error {
  override readonly name = 'UnusableAnswer';
}

/** Whether the sandbox was reached and what it sent was no answer: by its head, or for the parser. */
export function isUnusable(error: Error): boolean {
  return error instanceof UnusableAnswer || ('code' in error && String(error.code).startsWith('HPE_'));
}

/** Throws `UnusableAnswer` unless the head of an answer can be passed on: Node's client takes more than its server sends. */
export function checkAnswer(answer: IncomingMessage): void {
  const { httpVersion, statusCode = 0, statusMessage = '', headers } = answer;
  if (!/^1\.[01]$/.test(httpVersion)) throw new UnusableAnswer(`it is one of HTTP/${httpVersion}`);
  if (statusCode < 200) throw new UnusableAnswer(`its status is ${statusCode}`);
  if (!REASON.test(statusMessage)) throw new UnusableAnswer('its reason phrase has control characters');
  const coding = headers['transfer-encoding'];
  // Any other one ends in a way of its own, which the client would have to see as the sandbox has framed it.
  if (coding !== undefined && coding.trim().toLowerCase() !== 'chunked')
    throw new UnusableAnswer('its transfer coding is not chunked');
}

/** Gives a request up whose answer does not begin within some KiB: provisional answers can go on for ever. */
export function limitHead(outgoing: ClientRequest): void {
  limitBytes(outgoing, HEAD_LIMIT, 'its head', ['response', 'upgrade']);
}

/** Gives a request up whose answer, with all that is around it, is longer than `limit` bytes. */
export function limitAnswer(outgoing: ClientRequest, limit: number): void {
  limitBytes(outgoing, limit, 'the answer', []);
}

/** @param ends events of the request from which on nothing is counted */
function limitBytes(outgoing: ClientRequest, limit: number, what: string, ends: readonly string[]): void {
  const watch = (socket: Socket) => {
    const before = socket.bytesRead;
    let counts = true;
    const look = () => {
      if (!counts || socket.bytesRead - before <= limit) return;
      outgoing.destroy(new UnusableAnswer(`${what} is longer than ${limit / 1024} KiB`));
    };
    const stop = () => {
      counts = false;
      socket.off('data', look);
    };
    socket.on('data', look);
    for (const event of [...ends, 'close']) outgoing.once(event, stop);
  };
  if (outgoing.socket) watch(outgoing.socket);
  else outgoing.once('socket', watch);
}
