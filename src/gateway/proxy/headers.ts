import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import type { Forwarded } from '../access/forwarded.ts';
import { isOwnOrigin } from '../access/origins.ts';

/** These headers are hop-by-hop (RFC 9110, section 7.6.1), except `expect`, which the gateway has already answered. */
const HOP_BY_HOP = ['connection', 'keep-alive', 'proxy-connection', 'upgrade', 'http2-settings', 'expect'];
/**
 * These headers are forwarded even if `Connection` names them. Without its length, the sandbox would read a body as the next
 * request, which no check of closed paths has seen. Without the headers that proxies set, it would trust those of the client.
 */
const ALWAYS_FORWARDED = new Set([
  ...['content-length', 'transfer-encoding', 'host', 'te', 'trailer'],
  ...['x-forwarded-for', 'x-forwarded-proto', 'x-forwarded-host'],
]);

/** Returns the headers of a message without the hop-by-hop ones. A repeated header stays repeated. */
function endToEnd(message: IncomingMessage): IncomingHttpHeaders {
  const headers: IncomingHttpHeaders = {};
  const named = (message.headers.connection ?? '').split(',').map((name) => name.trim().toLowerCase());
  const dropped = new Set([...HOP_BY_HOP, ...named.filter((name) => !ALWAYS_FORWARDED.has(name))]);
  // Node throws if a message without chunks announces trailers.
  if (!/(^|,)\s*chunked\s*$/i.test(message.headers['transfer-encoding'] ?? '')) dropped.add('trailer');
  for (const [name, value] of Object.entries(message.headers)) {
    if (dropped.has(name)) continue;
    const values = ALWAYS_FORWARDED.has(name) ? undefined : message.headersDistinct[name];
    headers[name] = values && values.length > 1 ? values : value;
  }
  return headers;
}

/** Returns whether a message is the last one on its connection. */
function closesConnection({ headers }: IncomingMessage): boolean {
  return /(^|,)\s*close\s*($|,)/i.test(headers.connection ?? '');
}

/** The gateway adds headers to a request according to these values. */
export interface Added {
  /** The name of this gateway in `Via`. */
  readonly pseudonym: string;
  /** Replaces `Host`, and `Origin` if that is of the same host; null: neither. */
  readonly host: string | null;
  readonly forwarded: Forwarded;
}

/** Replaces the headers of a client's request by those to forward. Returns whether the client wants its connection closed. */
export function rewriteRequest(request: IncomingMessage, added: Added): boolean {
  const close = closesConnection(request);
  request.headers = headersFor(request, added);
  return close;
}

/** Replaces the headers of an upgrade by those to forward, with its two hop-by-hop headers. */
export function rewriteUpgrade(request: IncomingMessage, added: Added): void {
  request.headers = { ...headersFor(request, added), connection: 'Upgrade', upgrade: 'websocket' };
}

function headersFor(request: IncomingMessage, { pseudonym, host, forwarded }: Added): IncomingHttpHeaders {
  const headers = endToEnd(request);
  forwarded.rewrite(headers, request);
  if (host !== null) {
    // The origin of another page stays, so that a server can refuse that.
    if (isOwnOrigin(headers)) headers.origin = `http://${host}`;
    headers.host = host;
  }
  const own = `${request.httpVersion} ${pseudonym}`;
  headers.via = headers.via === undefined ? own : [headers.via, own].flat().join(', ');
  return headers;
}

/**
 * Servers in front, such as nginx, obey these headers (in lower case). A sandbox could make them send files of the host, or
 * cache responses that must not be cached.
 */
const OBEYED = /^(?:x-accel-.*|x-sendfile|x-lighttpd-send-file)$/;

/** Replaces the headers of a sandbox's response to `request` by those to forward. */
export function rewriteResponse(
  upstream: IncomingMessage,
  request: IncomingMessage,
  { close, vary }: { readonly close: boolean; readonly vary: string },
): void {
  const headers: IncomingHttpHeaders = {
    ...withoutObeyed(upstream),
    connection: close ? 'close' : 'keep-alive',
  };
  // With other values of these headers, the same URL belongs to another sandbox.
  headers.vary = [headers.vary, vary].flat().filter(Boolean).join(', ');
  const noBody = upstream.statusCode === 204 || upstream.statusCode === 304;
  // Such a response is not sent in chunks, so it has no trailers.
  if (noBody || request.httpVersion === '1.0') delete headers.trailer;
  upstream.headers = headers;
}

/** Replaces the headers of a sandbox's answer that accepts a WebSocket. It has no body, whatever its headers say. */
export function rewriteUpgradeAnswer(upstream: IncomingMessage): void {
  const { 'content-length': _, 'transfer-encoding': _coding, ...headers } = withoutObeyed(upstream);
  upstream.headers = { ...headers, connection: 'Upgrade', upgrade: 'websocket' };
}

function withoutObeyed(upstream: IncomingMessage): IncomingHttpHeaders {
  return Object.fromEntries(Object.entries(endToEnd(upstream)).filter(([name]) => !OBEYED.test(name)));
}
