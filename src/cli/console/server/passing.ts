import http, { type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import { pipeline } from 'node:stream/promises';
import { failureOf } from '../../connection/failures.ts';
import { answerError, readObject, sendJson } from './answers.ts';
import type { CallTarget } from './targets.ts';

/** The headers of a request that go on to the daemon or the gateway. No other can be of use, and some could do harm. */
const PASSED = [
  ...['accept', 'accept-encoding', 'content-type', 'content-length', 'content-encoding'],
  ...['connect-protocol-version', 'connect-timeout-ms', 'keepalive-ping-interval'],
  ...['if-match', 'if-none-match', 'range'],
];
/** The headers of an answer that the page gets. */
const RETURNED = [
  ...['content-type', 'content-length', 'content-encoding', 'content-range', 'accept-ranges'],
  ...['etag', 'last-modified', 'retry-after', 'x-next-token', 'date'],
];
/** The most bytes of an answer of which members are told: the metadata of a sandbox are in it. */
const MAX_TOLD = 256 * 1024;
/** A browser shows nothing of an answer as a page of the console, and runs nothing in it. */
const INERT = {
  'content-security-policy': "sandbox; default-src 'none'",
  'content-disposition': 'attachment',
};

/** A call that is passed on. */
export interface PassedCall {
  readonly target: CallTarget;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The members that are told of the body of a success, whose others may be tokens; null: all of it. */
  readonly tells?: readonly string[] | null;
  /** The headers of the answer, by those that the daemon has sent. */
  answerHeaders?(headers: IncomingHttpHeaders): Readonly<Record<string, string>>;
}

/** The headers of a request that go on, and those of the user that the page names. */
export function passedHeaders({ headers }: IncomingMessage, user: string | null): Record<string, string> {
  const named = headers['x-console-user'];
  const name = typeof named === 'string' && named !== '' ? decodeURIComponent(named) : user;
  return {
    ...pick(headers, PASSED),
    ...(name !== null && { authorization: `Basic ${Buffer.from(`${name}:`).toString('base64')}` }),
  };
}

/** Passes a call on, and its answer back. Each side waits for the other one, and ends with it. */
export function passOn(request: IncomingMessage, response: ServerResponse, call: PassedCall): void {
  const { target, method, path } = call;
  const url = new URL(target.url + path);
  const headers = { ...call.headers, ...target.headers };
  const sent = (url.protocol === 'https:' ? https : http).request(url, {
    method,
    agent: target.agent,
    headers,
  });
  sent.on('error', (error) => {
    if (response.headersSent) response.destroy();
    else {
      const { message } = failureOf(error, target.name);
      answerError(response, 502, hasNotArrived(error) ? 'unavailable' : 'unknown', message);
    }
    // Otherwise a browser that is still sending would not read the answer.
    request.unpipe(sent).resume();
  });
  let isAnswered = false;
  sent.once('response', (answer: IncomingMessage) => {
    isAnswered = true;
    if (call.tells && statusOf(answer) < 300) return void tellMembers(answer, response, call.tells);
    const own = call.answerHeaders?.(answer.headers) ?? {};
    response.writeHead(statusOf(answer), { ...pick(answer.headers, RETURNED), ...INERT, ...own });
    // When one side breaks off, so does the other.
    pipeline(answer, response).catch(() => response.destroy());
    answer.once('end', () => request.unpipe(sent).resume());
  });
  // Without an error for an answer that is none, such as a switch to another protocol.
  sent.once('close', () => {
    if (!isAnswered && !response.headersSent)
      answerError(response, 502, 'unknown', `${target.name} did not answer`);
  });
  response.once('close', () => sent.destroy());
  request.pipe(sent);
}

/** Tells members of an object in JSON; without any, that it was done. */
async function tellMembers(
  answer: IncomingMessage,
  response: ServerResponse,
  names: readonly string[],
): Promise<void> {
  if (names.length === 0) {
    answer.resume();
    return void response.writeHead(204, INERT).end();
  }
  const value = (await readObject(answer, MAX_TOLD)) ?? {};
  // An answer that breaks off is an error of the request, which has been told meanwhile.
  if (response.headersSent) return;
  for (const [name, each] of Object.entries(INERT)) response.setHeader(name, each);
  sendJson(response, 200, Object.fromEntries(names.map((name) => [name, value[name]])));
}

/** The status of an answer; 502 for one that no server may send. */
function statusOf({ statusCode = 0 }: IncomingMessage): number {
  return statusCode >= 200 && statusCode <= 599 ? statusCode : 502;
}

/** Whether the connection was never made, so that the call may be made again. */
function hasNotArrived(error: Error): boolean {
  return ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH'].includes(
    String((error as NodeJS.ErrnoException).code),
  );
}

function pick(headers: IncomingHttpHeaders, names: readonly string[]): Record<string, string> {
  const found = names.flatMap((name) => {
    const value = headers[name];
    return typeof value === 'string' ? [[name, value] as const] : [];
  });
  return Object.fromEntries(found);
}
