import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Forwarded } from '../access/forwarded.ts';

/** Hop-by-hop headers (RFC 9110, section 7.6.1), and `expect`, which Node's server has answered. */
const HOP_BY_HOP = ['connection', 'keep-alive', 'proxy-connection', 'upgrade', 'http2-settings', 'expect'];
/**
 * Forwarded even if `Connection` names them: without its length a body would be read by the sandbox as the next
 * request, past the check of closed paths, and without the headers that proxies set it would trust the client's.
 */
const ALWAYS_FORWARDED = new Set([
  ...['content-length', 'transfer-encoding', 'host', 'te', 'trailer'],
  ...['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host'],
]);

/** The headers of a message without the hop-by-hop ones. A repeated header stays repeated. */
function endToEnd(message: IncomingMessage): IncomingHttpHeaders {
  const headers: IncomingHttpHeaders = {};
  const named = (message.headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  const dropped = new Set([...HOP_BY_HOP, ...named.filter((name) => !ALWAYS_FORWARDED.has(name))]);
  // Node throws where trailers are announced without chunks.
  if (!/(^|,)\s*chunked\s*$/i.test(message.headers['transfer-encoding'] ?? '')) dropped.add('trailer');
  for (const [name, value] of Object.entries(message.headers)) {
    if (dropped.has(name)) continue;
    const values = ALWAYS_FORWARDED.has(name) ? undefined : message.headersDistinct[name];
    headers[name] = values && values.length > 1 ? values : value;
  }
  return headers;
}

/** Whether a message is the last one on its connection. */
function closesConnection({ headers }: IncomingMessage): boolean {
  return /(^|,)\s*close\s*($|,)/i.test(headers.connection ?? '');
}

/** Headers that are added to a request. */
export interface Added {
  /** This gateway's name in `Via`. */
  readonly pseudonym: string;
  readonly forwarded: Forwarded;
}

/** Replaces the headers of a client's request by those to forward. Returns whether the client will close its connection. */
export function rewriteRequest(request: IncomingMessage, added: Added): boolean {
  const close = closesConnection(request);
  request.headers = headersFor(request, added);
  return close;
}

/** The same for an upgrade, whose own two headers are forwarded. */
export function rewriteUpgrade(request: IncomingMessage, added: Added): void {
  request.headers = { ...headersFor(request, added), connection: 'Upgrade', upgrade: 'websocket' };
}

function headersFor(request: IncomingMessage, { pseudonym, forwarded }: Added): IncomingHttpHeaders {
  const headers = endToEnd(request);
  forwarded.rewrite(headers, request);
  const own = `${request.httpVersion} ${pseudonym}`;
  headers.via = headers.via === undefined ? own : [headers.via, own].flat().join(', ');
  return headers;
}

/** What servers in front obey, such as nginx: they would send files of the host, or keep what must not be kept. In lower case. */
const OBEYED = /^(?:x-accel-.*|x-sendfile|x-lighttpd-send-file)$/;

/** Replaces the headers of a sandbox' response to `request` by those to forward. */
export function rewriteResponse(
  upstream: IncomingMessage,
  request: IncomingMessage,
  { close, vary }: { readonly close: boolean; readonly vary: string },
): void {
  const headers: IncomingHttpHeaders = { ...endToEnd(upstream), connection: close ? 'close' : 'keep-alive' };
  // The same URL is that of another sandbox.
  headers.vary = [headers.vary, vary].flat().filter(Boolean).join(', ');
  const noBody = upstream.statusCode === 204 || upstream.statusCode === 304;
  // Such a response is not sent in chunks, so it has no trailers.
  if (noBody || request.httpVersion === '1.0') delete headers.trailer;
  for (const name of Object.keys(headers)) if (OBEYED.test(name)) delete headers[name];
  upstream.headers = headers;
}
