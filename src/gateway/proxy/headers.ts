import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

/** They are about one connection, not about the message (RFC 9110, 7.6.1); `expect` was answered by this side. */
const OF_ONE_HOP = ['connection', 'keep-alive', 'proxy-connection', 'upgrade', 'http2-settings', 'expect'];
/**
 * Never dropped, whatever `Connection` names: without its length, a body would be read over there as the next request,
 * past everything that was checked here.
 */
const OF_THE_FRAME = new Set(['content-length', 'transfer-encoding', 'host', 'te', 'trailer']);

/** The headers without those of one hop, and those that are there more than once one by one, as they came. */
function endToEnd(message: IncomingMessage): IncomingHttpHeaders {
  const headers: IncomingHttpHeaders = {};
  const named = (message.headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  const dropped = new Set([...OF_ONE_HOP, ...named.filter((name) => !OF_THE_FRAME.has(name))]);
  // Only after chunks can there be trailers; Node throws where they are announced without them.
  if (!/(^|,)\s*chunked\s*$/i.test(message.headers['transfer-encoding'] ?? '')) dropped.add('trailer');
  for (const [name, value] of Object.entries(message.headers)) {
    if (dropped.has(name)) continue;
    const values = OF_THE_FRAME.has(name) ? undefined : message.headersDistinct[name];
    headers[name] = values && values.length > 1 ? values : value;
  }
  return headers;
}

/** Whether the connection ends with this message. */
function closes({ headers }: IncomingMessage): boolean {
  return /(^|,)\s*close\s*($|,)/i.test(headers.connection ?? '');
}

/** Makes of a client's request what the sandbox is to see. Returns whether the client's connection ends with it. */
export function forwardRequest(request: IncomingMessage): boolean {
  const close = closes(request);
  request.headers = endToEnd(request);
  return close;
}

/** The same for an upgrade, whose two headers are for the sandbox, too. */
export function forwardUpgrade(request: IncomingMessage): void {
  request.headers = { ...endToEnd(request), connection: 'Upgrade', upgrade: 'websocket' };
}

/** Makes of a sandbox' answer to `request` what the client is to see. */
export function forwardResponse(answer: IncomingMessage, request: IncomingMessage, close: boolean): void {
  const headers = { ...endToEnd(answer), connection: close ? 'close' : 'keep-alive' };
  const bare = answer.statusCode === 204 || answer.statusCode === 304;
  // Neither has chunks, and so none has trailers.
  if (bare || request.httpVersion === '1.0') delete headers.trailer;
  answer.headers = headers;
}
