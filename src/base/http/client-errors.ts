import { type IncomingMessage, maxHeaderSize, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { ERROR_HEADERS, errorBody, messageOf } from '../errors.ts';

/** The client has this long to read the response before the connection is destroyed. */
const LINGER_MS = 1000;

/** Returns the responses to some errors of Node's HTTP parser and its timers; the response to all others is 400. */
const refusalsFor = (
  headLimit: number,
): Readonly<Record<string, readonly [status: number, message: string]>> => ({
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'request header took too long: send all of it at once'],
  HPE_HEADER_OVERFLOW: [431, `request line and headers are larger than ${headLimit} bytes: send less`],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, 'chunk extensions are larger than 16384 bytes: send less'],
});

type ClientError = Error & { readonly code?: string };

/**
 * Returns a handler of a server's event `clientError`, which answers an unreadable request with a REST error and closes the
 * connection. `currentOf` returns the response in progress on a connection, or null. `headLimit` is the server's `maxHeaderSize`,
 * in bytes.
 */
export function clientErrorHandler(
  currentOf: (socket: Socket) => ServerResponse | null,
  headLimit = maxHeaderSize,
): (error: ClientError, socket: Socket) => void {
  const answered = new WeakSet<Socket>();
  const refusals = refusalsFor(headLimit);
  return (error, socket) => {
    // The event is emitted again for each further chunk.
    if (answered.has(socket)) return;
    // The client would read a second response as part of the first.
    if (error.code === 'ECONNRESET' || !socket.writable || currentOf(socket)?.headersSent) {
      socket.destroy();
      return;
    }
    answered.add(socket);
    const [status, message] = refusals[error.code ?? ''] ?? [400, `bad request: ${reasonOf(error)}`];
    closeWith(socket, status, message);
  };
}

/** Answers with a REST error and closes the connection. */
export function closeWith(socket: Socket, status: number, message: string): void {
  socket.end(responseOf(status, message));
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}

/** Handles the event `checkExpectation`: refuses any `Expect` other than `100-continue`. Source: RFC 9110, section 10.1.1. */
export function refuseExpectation({ headers }: IncomingMessage, response: ServerResponse): void {
  const body = errorBody(417, `expectation '${headers.expect}' is not supported: use 100-continue or none`);
  response.writeHead(417, headersOf(body)).end(body);
}

/**
 * Returns what is wrong with the header `Host` of a request, or null. There must be exactly one, or none in HTTP/1.0. Node's own
 * check is off, because its response has no body and it accepts several. Source: RFC 9112, section 3.2.
 */
export function hostFault({ headers, httpVersion, rawHeaders }: IncomingMessage): string | null {
  if (headers.host === undefined) return httpVersion === '1.0' ? null : 'header Host is missing';
  let count = 0;
  // Names and values alternate.
  for (let at = 0; at < rawHeaders.length; at += 2) if (isHost(rawHeaders[at])) count++;
  return count === 1 ? null : `header Host was sent ${count} times: send it once`;
}

function isHost(name = ''): boolean {
  return name.length === 4 && name.toLowerCase() === 'host';
}

/** Returns the parser's own explanation if there is one. */
function reasonOf(error: Error & { readonly reason?: unknown }): string {
  return typeof error.reason === 'string' && error.reason !== '' ? error.reason : messageOf(error);
}

function responseOf(status: number, message: string): string {
  const body = errorBody(status, message);
  const lines = Object.entries(headersOf(body)).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`;
}

function headersOf(body: string) {
  return { ...ERROR_HEADERS, 'content-length': Buffer.byteLength(body), connection: 'close' };
}
